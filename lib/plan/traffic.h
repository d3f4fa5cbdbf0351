// Private to plan: bytes that one rank sends in one step, and how long it waits.
#pragma once

#include <utility>
#include <vector>

#include "plan/plan.h"

namespace rr::plan {

// By kind, in the order in which they are printed; those that are not sent are 0.
std::vector<std::pair<const char*, double>> traffic_of(const Plan& plan, int stage);

// Part of a step that a stage waits for others.
double bubble_of(const Plan& plan);

}  // namespace rr::plan
