"""Short kernel ids: readable, stable, different where the kernels differ."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from argus_core.kernel_names import is_collective, is_memory_operation, kernel_id

ATEN = "void at::native::(anonymous namespace)::elementwise_kernel<4, float>(int, float*)"


def test_a_plain_name_is_its_own_id():
    """A name that loses nothing is not decorated."""
    assert kernel_id("volta_sgemm_128x64_nn") == "volta_sgemm_128x64_nn"


def test_template_and_call_arguments_are_cut_and_told_apart_by_a_hash():
    """Two instantiations of one template have different ids with the same readable part."""
    first, second = kernel_id(ATEN), kernel_id(ATEN.replace("float", "double"))
    assert first.startswith("elementwise_kernel-")
    assert second.startswith("elementwise_kernel-")
    assert first != second


@pytest.mark.parametrize(
    ("name", "readable"),
    [
        (
            "void at::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, float>(int)",
            "vectorized_elementwise_kernel.CUDAFunctor_add",
        ),
        (
            "void cutlass::Kernel2<cutlass_80_tensorop_s16816gemm>(cutlass::Params)",
            "Kernel2.cutlass_80_tensorop_s16816gemm",
        ),
        (
            "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 64>, true>(Params)",
            "flash_fwd_kernel.Flash_fwd_kernel_traits",
        ),
        ("void reduce<int, 4>(float*)", "reduce"),
    ],
)
def test_the_telling_template_argument_stays(name: str, readable: str):
    """A generic kernel is recognised by the functor or traits it was made from."""
    assert kernel_id(name).rsplit("-", 1)[0] == readable


def test_a_copy_is_named_by_its_direction():
    """Profiler names of copies become label values that say the same."""
    assert kernel_id("Memcpy HtoD (Pageable -> Device)") == "Memcpy_HtoD_Pageable_to_Device"


@pytest.mark.parametrize(
    "name",
    [
        "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)",
        "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevComm*, unsigned long, ncclWork*)",
        "void ncclDevKernel_AllGather(int)",
    ],
)
def test_collectives_are_known_by_name_and_by_id(name: str):
    """Both spellings of NCCL count, and the id says the same as the name."""
    assert is_collective(name)
    assert is_collective(kernel_id(name))


@pytest.mark.parametrize("name", ["Memcpy DtoH (Device -> Pinned)", "Memset (Device)", "memcpy"])
def test_memory_operations_are_known_by_name_and_by_id(name: str):
    """Copies and memory sets are not compute."""
    assert is_memory_operation(name)
    assert is_memory_operation(kernel_id(name))


def test_a_kernel_whose_name_begins_like_a_copy_is_a_kernel():
    """`memcpyKernel` is compute, not a copy engine operation."""
    assert not is_memory_operation("memcpykernel_custom")


@given(st.text(max_size=300))
def test_any_name_gives_a_bounded_label_value(name: str):
    """Whatever a driver reports, the id is short, printable and never empty."""
    id_ = kernel_id(name)
    assert 0 < len(id_) <= 73
    assert id_.isprintable()
    assert id_ == kernel_id(name)
