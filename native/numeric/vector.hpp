#pragma once

#include "export.hpp"

/// Where a label's value stands in a text, as it is written there.
struct ArgusPlace {
  std::int64_t begin;
  std::int64_t size;  ///< bytes, the quotes not among them
};

/// Reads the elements of an instant vector as Prometheus writes them:
/// {"metric":{"rank":"7","mode":"0"},"value":[1790000000.1,"0.25"]},...] with nothing between them but commas. The
/// twin of _of_elements in argus_l3_worker/read/mode_columns.py, which reads everything else.
///
/// `text`: from the first element, or the closing bracket, on; `size` bytes.
/// `labels`: up to 8 names; no element has another one, and one that it lacks counts as empty.
/// Outputs, for up to `capacity` elements: `codes`, labels x capacity, which value a label has, numbered as they come;
/// `places`, labels x capacity, these values, escapes as they are: values are alike where they are written alike;
/// `distinct`, how many there are by label; `values`; `read`, bytes up to the closing bracket and with it.
///
/// Returns the number of elements, kArgusOtherForm where anything is not as above, or another ArgusNumericError. Keeps
/// no state, allocates nothing, throws nothing; any number of threads, each with a workspace of its own.
/// Cost: 0.7 to 1 us an element of four labels (48 MB of 410,000, on one thread of two of a core).
ARGUS_EXPORT std::int64_t argus_vector_read(const char* text, std::int64_t size,
                                            const char* const* labels, std::int64_t label_count,
                                            std::int64_t capacity, void* workspace,
                                            std::int64_t workspace_bytes, std::int32_t* codes,
                                            ArgusPlace* places, std::int64_t* distinct,
                                            double* values, std::int64_t* read) noexcept;

/// Bytes of workspace, aligned to 4, that argus_vector_read needs: 16 an element and label at most. Any thread, O(1).
ARGUS_EXPORT std::int64_t argus_vector_workspace_bytes(std::int64_t label_count,
                                                       std::int64_t capacity) noexcept;
