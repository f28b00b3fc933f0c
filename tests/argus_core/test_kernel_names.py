"""Short kernel ids: readable, stable, different where the kernels differ."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from argus_core.kernel_names import collective_phase, is_collective, is_memory_operation, kernel_id

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


# Names as profilers of real jobs print them, and the operation that each one tells.
ELSEWHERE = {
    "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, float*, int*, long*)": None,
    "void deep_ep::intranode::combine<__nv_bfloat16, (int)8, (int)768, (int)4096>(T1 *, float *)": None,
    "void deep_ep::intranode::notify_dispatch<8>(int const*, int*)": None,
    "void deep_ep::intranode::cached_notify_combine<(int)8>(void **, int *, int)": None,
    "void deep_ep::internode::cached_notify<true, 2>(int, int)": None,
    "void deep_ep::internode_ll::dispatch<true, 3, 10, 7168>(void*, float*, int*)": None,
    "void deep_ep::internode_ll::dispatch_opt1_hidden6144<1, false>(void*)": None,
    "deep_ep::internode_ll::combine": None,
    "void primus_turbo::deep_ep::internode::dispatch<false, 2>(int4*)": None,
    "void deep_ep::elastic::hybrid_dispatch_impl<true, false, 24>(void*)": None,
    "void uccl::internode_ll::combine<true>(void*)": None,
    "void hybrid_ep::combine_kernel<hybrid_ep::warp_group<4, 0> >(int)": None,
    "void nvshmemi_reduce_kernel<int, (rdxn_ops)4>(int, int, int, int*)": "reduce",
    "nvshmemi_proxy_rma_entrypoint_blocking(rma_workitem_h*)": None,
    "void barrier_on_stream_kernel_threadgroup<(threadgroup_t)1>(int, int)": None,
    "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(vllm::RankData*)": "all_reduce",
    "void sglang::cross_device_reduce_2stage<__half, 8>(sglang::RankData*)": "all_reduce",
    "aiter::cross_device_reduce_2stage": "all_reduce",
    "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)": "all_reduce",
    "void (anonymous namespace)::two_shot_all_reduce_kernel_inplace<c10::BFloat16, 16, 2>(int)": "all_reduce",
    "void <unnamed>::multimem_one_shot_all_reduce_kernel<c10::BFloat16, (int)16>(int)": "all_reduce",
    "void c10d::symmetric_memory::multimem_all_gather_kernel<16>(char*, char*)": "all_gather",
    "one_shot_all_reduce_kernel": "all_reduce",
    "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<"
    "(flashinfer::trtllm_allreduce_fusion::AllReduceFusionPattern)1, __nv_bfloat16, 8>(int)": "all_reduce",
    "void flashinfer::trtllm_mnnvl_allreduce::oneshotAllreduceFusionKernel<(int)8>(int)": "all_reduce",
    "void tensorrt_llm::kernels::twoShotAllReduceKernel<__half, 8, true>(AllReduceParams)": "all_reduce",
    "void quickreduce::allreduce_prototype_twoshot<AllReduceTwoshot<__half>, __half>(int)": "all_reduce",
    "void tensorrt_llm::kernels::moe_a2a::moeA2ADispatchKernel<8>(int const*)": None,
    "void userbuffers_fp16_sum_inplace_gpu_rr_rs<2>(int, int, void**)": None,
}


@pytest.mark.parametrize(("name", "phase"), ELSEWHERE.items())
def test_communication_beside_nccl_is_known_by_name_and_by_id(name: str, phase: str | None):
    """Expert-parallel exchanges, NVSHMEM and the all-reduces of inference engines wait for peers too."""
    assert is_collective(name)
    assert is_collective(kernel_id(name))
    assert collective_phase(name) == collective_phase(kernel_id(name)) == phase


@pytest.mark.parametrize(
    "name",
    [
        "void deep_ep::layout::get_dispatch_layout<256, 32, 8>(long const*, int*)",
        "void deep_ep::internode::get_dispatch_layout<256, 32, 8>(long const*, int*)",
        "void deep_ep::elastic::dispatch_copy_epilogue_impl<true, false>(void*)",
        "void hybrid_ep::permute_kernel<float>(float*)",
        "void deep_gemm::sm90_fp8_gemm_1d2d_impl<7168>(int)",
        "void flash_fwd_mla_combine_kernel<cutlass::bfloat16_t>(Params)",
        "void mine::combine_heads<float>(float*)",
        "dispatch",
        "combine.float-01234567",
        "dispatch_tokens",
        "void my::intranode::dispatch<8>(int)",
        "void router::notify_dispatch_kernel(int)",
        "triton_poi_fused_add_all_reduce_4",
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float> >(int)",
        "gemm_one_shot_all_reduce_kernel",
        "void cutlass::device_kernel<flashinfer::oneshotAllreduceFusionKernel>(int)",
        "void device_reduce<vllm::cross_device_reduce_1stage>(int)",
        "local_device_load_rmsnorm",
        "moeA2ASanitizeExpertIds",
        "void cross_device_norm<float>(float*)",
        "void my_nvshmem_free_gemm(int)",
    ],
)
def test_kernels_that_only_sound_like_communication_compute(name: str):
    """Layouts, epilogues and permutations of one GPU, and GEMMs with an exchange inside them."""
    assert not is_collective(name)
    assert not is_collective(kernel_id(name))
    assert collective_phase(name) is None


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
