// Does it fit, and the smallest change that makes it fit.
#include "plan/fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/text.h"
#include "plan/planner.h"

namespace rr::plan {

Need need_of(const Plan& plan, const recipe::Machine& machine) {
  const int stage_size = plan.topology.world / plan.topology.pipeline;
  const auto per_node = static_cast<int>(std::max<std::int64_t>(1, machine.devices_per_node));
  Need need;
  std::vector<std::int64_t> host;
  for (int s = 0; s < plan.topology.pipeline; ++s) {
    const RankPlan rank = rank_plan(plan, s * stage_size);
    host.push_back(rank.bytes(Pool::host));
    const std::int64_t device = rank.bytes(Pool::device);
    if (device > need.device) {
      need.device = device;
      need.rank = rank.rank;
    }
  }
  for (int first = 0; first < plan.topology.world; first += per_node) {
    std::int64_t sum = 0;
    for (int r = first; r < std::min(first + per_node, plan.topology.world);) {
      const int stage = r / stage_size;
      const int here = std::min({first + per_node, plan.topology.world, (stage + 1) * stage_size});
      sum += host[static_cast<std::size_t>(stage)] * (here - r);
      r = here;
    }
    need.host = std::max(need.host, sum);
  }
  return need;
}

bool fits(const Need& need, const recipe::Machine& machine) {
  return need.device <= machine.device_bytes &&
         (machine.host_bytes <= 0 || need.host <= machine.host_bytes);
}

Plan with_fraction(const Plan& plan, double fraction) {
  Plan changed = plan;
  changed.optimizer.cpu_offload = fraction > 0;
  changed.optimizer.fraction = fraction;
  return changed;
}

std::vector<std::string> shortages(const Need& need, const recipe::Machine& machine) {
  std::vector<std::string> lines;
  if (need.device > machine.device_bytes) {
    lines.push_back(fmt::format("rank {} needs {}, {} too much", need.rank,
                                format_bytes(need.device),
                                format_bytes(need.device - machine.device_bytes)));
  }
  if (machine.host_bytes > 0 && need.host > machine.host_bytes) {
    lines.push_back(fmt::format("a node needs {} of host memory, {} too much",
                                format_bytes(need.host),
                                format_bytes(need.host - machine.host_bytes)));
  }
  return lines;
}

namespace {

// Each of these is the smallest change of one kind that fits, as the override that makes it.
std::optional<std::string> more_fraction(const Plan& plan, const recipe::Machine& machine) {
  const double now = plan.optimizer.cpu_offload ? plan.optimizer.fraction : 0;
  const std::optional<double> fraction = smallest_fraction(plan, machine);
  if (!fraction || *fraction <= now) return std::nullopt;
  return fmt::format("optimizer.optimizer_cpu_offload=True optimizer.optimizer_offload_fraction={}",
                     *fraction);
}

std::optional<std::string> more_activation_layers(const Plan& plan,
                                                  const recipe::Machine& machine) {
  if (plan.topology.pipeline > 1) return std::nullopt;
  Plan changed = plan;
  changed.activations.enabled = true;
  for (std::int64_t n = plan.activations.layers + 1; n < plan.model.num_layers; ++n) {
    changed.activations.layers = n;
    if (fits(need_of(changed, machine), machine)) {
      return fmt::format("model.cpu_offloading=True model.cpu_offloading_num_layers={}", n);
    }
  }
  return std::nullopt;
}

std::optional<std::string> smaller_micro_batch(const Plan& plan, const recipe::Machine& machine) {
  for (std::int64_t b = plan.batch.micro_batch - 1; b >= 1; --b) {
    if (plan.batch.global_batch % (b * plan.topology.data) != 0) continue;
    Plan changed = plan;
    changed.batch.micro_batch = b;
    changed.batch.num_micro_batches =
        static_cast<int>(plan.batch.global_batch / (b * plan.topology.data));
    if (fits(need_of(changed, machine), machine)) {
      return fmt::format("train.micro_batch_size={}", b);
    }
  }
  return std::nullopt;
}

std::optional<std::string> full_recompute(const Plan& plan, const recipe::Machine& machine) {
  if (plan.recompute.full) return std::nullopt;
  Plan changed = plan;
  changed.recompute = {true, plan.model.num_layers};
  if (!fits(need_of(changed, machine), machine)) return std::nullopt;
  return "model.recompute_granularity=full model.recompute_method=uniform "
         "model.recompute_num_layers=1";
}

std::optional<std::string> more_stages(const Plan& plan, const recipe::Machine& machine) {
  const Topology& t = plan.topology;
  for (int factor = 2; factor <= t.data && factor <= t.expert_data; ++factor) {
    const int stages = t.pipeline * factor;
    if (t.data % factor != 0 || t.expert_data % factor != 0 || t.chunks > 1 ||
        plan.model.num_layers % stages != 0) {
      continue;
    }
    Plan changed = plan;
    changed.topology.pipeline = stages;
    changed.topology.data /= factor;
    changed.topology.expert_data /= factor;
    changed.batch.num_micro_batches *= factor;
    lay_out(changed);
    if (fits(need_of(changed, machine), machine)) {
      return fmt::format("model.pipeline_model_parallel_size={}", stages);
    }
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::string> changes_that_fit(const Plan& plan, const recipe::Machine& machine) {
  std::vector<std::string> overrides;
  for (const auto& change :
       {more_fraction, more_activation_layers, smaller_micro_batch, full_recompute, more_stages}) {
    if (std::optional<std::string> text = change(plan, machine)) overrides.push_back(*text);
  }
  return overrides;
}

std::optional<double> smallest_fraction(const Plan& plan, const recipe::Machine& machine) {
  int low = 0, high = 100;  // percent
  const auto ok = [&](int percent) {
    return fits(need_of(with_fraction(plan, percent / 100.0), machine), machine);
  };
  if (ok(0)) return 0.0;
  if (need_of(with_fraction(plan, 1.0), machine).device > machine.device_bytes) {
    return std::nullopt;
  }
  // The device's part falls with the fraction; the host's grows and is checked at the end.
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    const Need need = need_of(with_fraction(plan, middle / 100.0), machine);
    (need.device <= machine.device_bytes ? high : low) = middle;
  }
  if (!ok(high)) return std::nullopt;
  return high / 100.0;
}

std::string fit_text(const Plan& plan, const recipe::Machine& machine) {
  const Need need = need_of(plan, machine);
  std::string text =
      fmt::format("machine {}: {} of device memory, {} of host memory per node\n", machine.name,
                  format_bytes(machine.device_bytes), format_bytes(machine.host_bytes));
  if (fits(need, machine)) {
    return text + fmt::format("it fits: {} free on rank {}'s device\n",
                              format_bytes(machine.device_bytes - need.device), need.rank);
  }
  for (const std::string& line : shortages(need, machine)) {
    text += "it does not fit: " + line + "\n";
  }
  const std::vector<std::string> changes = changes_that_fit(plan, machine);
  for (const std::string& change : changes) text += "  this would fit: " + change + "\n";
  if (changes.empty()) text += "  no single change makes it fit; use more ranks\n";
  return text;
}

double choose_fraction(Plan& plan, const recipe::Machine& machine, const std::string& where) {
  const auto refuse = [&where](const std::string& what, const std::string& remedy) {
    throw UsageError(Problem{.key = "optimizer.optimizer_offload_fraction",
                             .where = where,
                             .what = what,
                             .remedy = remedy});
  };
  if (machine.device_bytes <= 0) {
    refuse(
        "optimizer_offload_fraction=auto needs to know the device's memory, and this run has no "
        "machine.",
        "Name one with --machine, or ask --dry-run --machine NAME which fraction it is and set "
        "that.");
  }
  if (const std::optional<double> fraction = smallest_fraction(plan, machine)) {
    plan = with_fraction(plan, *fraction);
    return *fraction;
  }
  const Plan most = with_fraction(plan, 1.0);
  const std::vector<std::string> changes = changes_that_fit(most, machine);
  refuse(fmt::format(
             "optimizer_offload_fraction=auto: machine {} has {} of device memory and {} of "
             "host memory per node, and no fraction fits; at 1.0 {}.",
             machine.name, format_bytes(machine.device_bytes), format_bytes(machine.host_bytes),
             join(shortages(need_of(most, machine), machine), " and ")),
         changes.empty() ? "Use more ranks."
                         : "With fraction 1 this would fit: " + join(changes, "; or ") + ".");
  return 1.0;
}

namespace {

std::string milliseconds(double value) {
  return value < 100 ? fmt::format("{:.3g}", value) : fmt::format("{:.0f}", value);
}

}  // namespace

std::string price_text(const Plan& plan, const recipe::Machine& machine) {
  if (!can_estimate(machine)) return "";
  const double ms = estimate(plan, machine).step_ms;
  const double without = estimate(with_fraction(plan, 0), machine).step_ms;
  return fmt::format("predicted step {} ms, {:.2f} times that without offload", milliseconds(ms),
                     ms / without);
}

std::string estimate_text(const Plan& plan, const recipe::Machine& machine) {
  const Estimate ours = estimate(plan, machine);
  const double tokens =
      static_cast<double>(plan.batch.global_batch) * static_cast<double>(plan.model.seq_length);
  std::string text = fmt::format(
      "predicted step: {} ms, {:.1f} TFLOP/s per device; compute {} ms, the rest is waiting\n",
      milliseconds(ours.step_ms),
      plan.flops_per_token * tokens / (ours.step_ms * 1e-3) / plan.topology.world / 1e12,
      milliseconds(ours.compute_ms));
  if (!plan.optimizer.cpu_offload) return text;
  const Estimate without = estimate(with_fraction(plan, 0), machine);
  text += fmt::format(
      "  {:.2f} times the step without optimizer offload; per rank: gradients down {} ms, "
      "Adam on the host {} ms, weights up {} ms\n",
      ours.step_ms / without.step_ms, milliseconds(ours.d2h_ms), milliseconds(ours.host_adam_ms),
      milliseconds(ours.h2d_ms));
  return text;
}

}  // namespace rr::plan
