// From a checked Config to a Plan, and a Plan as text.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plan/plan.h"
#include "recipe/recipe.h"

namespace rr::plan {

// `recipe` has no errors (recipe::Recipe::has_errors). Pure: equal input, equal Plan. An offload
// fraction `auto` is resolved for `machine`; throws UsageError when it has no device_bytes (a run
// without a machine), or with the numbers when no fraction fits.
Plan make_plan(const recipe::Recipe& recipe, const recipe::Machine& machine);

// Stable text for people and golden files: layout, parameters, memory per rank class, schedule.
std::string layout_text(const Plan& plan);
std::string memory_text(const Plan& plan);
std::string schedule_text(const Plan& plan);
// Bytes that a rank of each stage sends in a step, by kind.
std::string traffic_text(const Plan& plan);
// All of the above, the changes and the launch line: what --dry-run prints.
std::string to_text(const Plan& plan);

// The same facts as one JSON object; the times where `machine` has rates.
std::string to_json(const Plan& plan, const recipe::Machine& machine = {});

// The mpirun line that starts `recipe_arguments` on the plan's world; no mpirun for one rank.
std::string launch_line(int world_size, const std::string& program,
                        const std::vector<std::string>& recipe_arguments);

// ---- prediction -------------------------------------------------------------------------------

// Who steps offloaded state: we (all cores, range by range, copies beside it when they overlap), or
// as the reference does (one thread). Both after the last gradient and before the next forward.
enum class OffloadPolicy : std::uint8_t { ours, megatron };

// Milliseconds of one step in the steady state.
struct Estimate {
  double step_ms = 0;
  double compute_ms = 0;      // of the busiest stage; the rest of step_ms is bubble and waiting
  double reduce_ms = 0;       // gradient reduction that sticks out of the last backward
  double device_adam_ms = 0;  // the following are busy times of a rank, hidden or not
  double d2h_ms = 0, host_adam_ms = 0, h2d_ms = 0;
};
// Whether the machine's file states the rates that an estimate needs.
bool can_estimate(const recipe::Machine& machine);
Estimate estimate(const Plan& plan, const recipe::Machine& machine,
                  OffloadPolicy policy = OffloadPolicy::ours);
std::string estimate_text(const Plan& plan, const recipe::Machine& machine);

// Whether the largest rank and the fullest node fit the machine; if not, by how much, and for each
// kind of change the smallest that fits, as an override. `machine.device_bytes` > 0.
std::string fit_text(const Plan& plan, const recipe::Machine& machine);
// The smallest optimizer offload fraction, in hundredths, with which the plan fits; none: no
// fraction does.
std::optional<double> smallest_fraction(const Plan& plan, const recipe::Machine& machine);

// Learning rate and weight decay after `samples` consumed samples (megatron.md 7.7).
double learning_rate(const SchedulePlan& schedule, std::int64_t samples);
double weight_decay(const SchedulePlan& schedule, std::int64_t samples);

}  // namespace rr::plan
