// Private to plan: what a plan needs of a machine's memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/plan.h"
#include "recipe/recipe.h"

namespace rr::plan {

struct Need {
  std::int64_t device = 0;  // of the largest rank
  std::int64_t host = 0;    // of the fullest node
  int rank = 0;             // the one with the largest device pool
};
// One rank stands for its stage; a node is filled with ranks in order.
Need need_of(const Plan& plan, const recipe::Machine& machine);
bool fits(const Need& need, const recipe::Machine& machine);
// By how much it does not fit: "rank 0 needs ..", "a node needs ..".
std::vector<std::string> shortages(const Need& need, const recipe::Machine& machine);
// For each kind of change the smallest that fits, as overrides.
std::vector<std::string> changes_that_fit(const Plan& plan, const recipe::Machine& machine);

Plan with_fraction(const Plan& plan, double fraction);
// "auto": the smallest fraction that fits, also set in `plan`. Throws UsageError without a machine,
// or with the numbers when even 1 does not fit; `where`: the place of the recipe that asks for it.
double choose_fraction(Plan& plan, const recipe::Machine& machine, const std::string& where);
// "predicted step 1732 ms, 1.64 times that without offload"; empty where the machine has no rates.
std::string price_text(const Plan& plan, const recipe::Machine& machine);

}  // namespace rr::plan
