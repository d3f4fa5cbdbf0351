// What a run prints around the training lines: the start, memory per rank, the last table.
#pragma once

#include "train/build.h"

namespace rr::train {

// Rank 0, before anything is allocated: changed settings, parameters, layout, memory.
void print_start(const plan::Plan& plan, int rank);

// Collective: the memory line of every rank (of data rank 0's in jobs above 64 ranks), in rank
// order, printed by the rank that speaks.
void print_memory(const Runtime& runtime, std::int64_t iterations);

// Collective: planned against measured bytes, each the maximum over ranks.
void print_comparison(const Runtime& runtime, std::int64_t device_bytes_after_build);

// One line of standard output, whole and flushed.
void print_line(const std::string& text);

}  // namespace rr::train
