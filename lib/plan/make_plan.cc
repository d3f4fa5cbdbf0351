// Config to Plan.
#include <fmt/format.h>

#include <algorithm>

#include "plan/fit.h"
#include "plan/from_config.h"
#include "plan/planner.h"

namespace rr::plan {

namespace {

DType state_type(const std::string& name) {
  if (name == "bf16") return DType::bf16;
  if (name == "fp16") return DType::f16;
  if (name == "fp8") return DType::u8;
  return DType::f32;
}

OptimizerPlan make_optimizer_plan(const recipe::Config& config) {
  const recipe::Optimizer& o = config.optimizer;
  OptimizerPlan plan;
  plan.beta1 = o.adam_beta1;
  plan.beta2 = o.adam_beta2;
  plan.epsilon = o.adam_eps;
  plan.clip = o.clip_grad;
  plan.sharded = o.use_distributed_optimizer;
  plan.cpu_offload = o.optimizer_cpu_offload && o.optimizer_offload_fraction.value > 0;
  plan.fraction = plan.cpu_offload ? o.optimizer_offload_fraction.value : 0.0;
  plan.offload_masters = o.offload_masters;
  plan.placement = o.offload_placement == "megatron" ? OptimizerPlan::Placement::megatron
                                                     : OptimizerPlan::Placement::latest_first;
  plan.overlap = o.overlap_cpu_optimizer_d2h_h2d;
  plan.gradients = config.ddp.grad_reduce_in_fp32
                       ? DType::f32
                       : state_type(config.model.params_dtype.value_or(""));
  plan.exp_avg = state_type(o.exp_avg_dtype);
  plan.exp_avg_sq = state_type(o.exp_avg_sq_dtype);
  return plan;
}

Decay decay_style(const std::string& name) {
  if (name == "constant") return Decay::constant;
  if (name == "cosine") return Decay::cosine;
  if (name == "inverse-square-root") return Decay::inverse_square_root;
  if (name == "WSD") return Decay::wsd;
  return Decay::linear;
}

WsdDecay wsd_style(const std::string& name) {
  if (name == "linear") return WsdDecay::linear;
  if (name == "cosine") return WsdDecay::cosine;
  if (name == "minus_sqrt") return WsdDecay::minus_sqrt;
  return WsdDecay::exponential;
}

SchedulePlan make_schedule(const recipe::Config& config, const BatchPlan& batch) {
  const recipe::Scheduler& s = config.scheduler;
  const std::int64_t gbs = batch.global_batch;
  const std::int64_t length = s.max_steps.value_or(batch.train_iters) * gbs;
  SchedulePlan plan;
  plan.max_lr = config.optimizer.lr.value_or(0.0);
  plan.min_lr = config.optimizer.min_lr.value_or(0.0);
  plan.warmup_init = s.lr_warmup_init;
  plan.style = decay_style(s.lr_decay_style);
  plan.wsd_style = wsd_style(s.lr_wsd_decay_style);
  plan.decay = s.lr_decay_samples ? *s.lr_decay_samples
               : s.lr_decay_iters ? *s.lr_decay_iters * gbs
                                  : length;
  plan.warmup =
      s.lr_warmup_fraction
          ? static_cast<std::int64_t>(*s.lr_warmup_fraction * static_cast<double>(plan.decay))
          : std::max(s.lr_warmup_samples, s.lr_warmup_iters * gbs);
  // As the reference does, with a warning of the rules: a warm-up ends before the decay does.
  if (plan.style != Decay::constant) {
    plan.warmup = std::min(plan.warmup, std::max<std::int64_t>(plan.decay - 1, 0));
  }
  plan.wsd_decay =
      s.lr_wsd_decay_samples ? *s.lr_wsd_decay_samples : s.lr_wsd_decay_iters.value_or(0) * gbs;
  plan.end_weight_decay = s.end_weight_decay.value_or(config.optimizer.weight_decay);
  plan.start_weight_decay = s.start_weight_decay.value_or(plan.end_weight_decay);
  plan.weight_decay_ramp = s.weight_decay_incr_style == "linear"   ? SchedulePlan::Ramp::linear
                           : s.weight_decay_incr_style == "cosine" ? SchedulePlan::Ramp::cosine
                                                                   : SchedulePlan::Ramp::constant;
  plan.weight_decay_steps = length;
  return plan;
}

ActivationOffloadPlan make_activations(const recipe::Model& m) {
  ActivationOffloadPlan plan;
  plan.enabled =
      m.cpu_offloading && m.cpu_offloading_activations && m.cpu_offloading_num_layers > 0;
  if (!plan.enabled) return plan;
  plan.layers = m.cpu_offloading_num_layers;
  plan.min_elements = m.min_offloaded_tensor_size;
  plan.retain_buffers = m.cpu_offloading_retain_pinned_cpu_buffers;
  return plan;
}

RecomputePlan make_recompute(const recipe::Model& m, const std::vector<StagePlan>& stages) {
  RecomputePlan plan;
  plan.full = m.recompute_granularity.value_or("") == "full";
  if (!plan.full) return plan;
  // uniform recomputes every layer of a stage, in units; block the first ones of it.
  std::int64_t most = 0;
  for (const StagePlan& stage : stages) {
    most = std::max(most, static_cast<std::int64_t>(stage.layers.size()));
  }
  plan.layers = m.recompute_method.value_or("uniform") == "block"
                    ? m.recompute_num_layers.value_or(most)
                    : most;
  return plan;
}

LogPlan make_log(const recipe::Recipe& recipe) {
  const recipe::Logger& logger = recipe.config.logger;
  LogPlan plan;
  plan.run_name = logger.run_name.value_or(recipe.name);
  plan.run_dir = logger.run_dir.value_or("runs/" + plan.run_name);
  plan.interval = logger.log_interval;
  plan.throughput = logger.log_throughput;
  plan.params_norm = logger.log_params_norm;
  plan.num_zeros = recipe.config.optimizer.log_num_zeros_in_grad;
  plan.tensorboard_dir = logger.tensorboard_dir.value_or("");
  return plan;
}

// The settings that were chosen, one a line. What follows from others is in config_yaml; here it
// would hide what was chosen.
std::string changes_text(const recipe::Recipe& recipe) {
  std::string text;
  for (const recipe::Change& change : recipe::changes(recipe)) {
    if (change.origin.kind == recipe::OriginKind::derived) continue;
    text +=
        fmt::format("  {}: {}  # {}\n", change.key, change.value, recipe::to_string(change.origin));
  }
  return text;
}

// Puts a number where the recipe says auto; tells it and its price among the changes.
void resolve_fraction(const recipe::Recipe& recipe, const recipe::Machine& machine, Plan& plan) {
  constexpr const char* kKey = "optimizer.optimizer_offload_fraction";
  const auto origin = recipe.origins.find(kKey);
  const std::string where = origin == recipe.origins.end() ? "" : recipe::to_string(origin->second);
  recipe::Recipe resolved = recipe;
  recipe::Fraction& fraction = resolved.config.optimizer.optimizer_offload_fraction;
  fraction = {choose_fraction(plan, machine, where), false};
  resolved.origins[kKey] = {recipe::OriginKind::derived, "auto on machine " + machine.name};
  plan.config_yaml = recipe::dump(resolved.config, &resolved);
  const std::string price = price_text(plan, machine);
  plan.changes = changes_text(resolved) +
                 fmt::format("  {}: {}  # auto: the smallest that fits machine {}{}{}\n", kKey,
                             fraction.value, machine.name, price.empty() ? "" : "; ", price);
}

}  // namespace

Plan make_plan(const recipe::Recipe& recipe, const recipe::Machine& machine) {
  RR_CHECK(!recipe.has_errors(), "a recipe with errors has no plan");
  const recipe::Config& config = recipe.config;
  Plan plan;
  plan.topology = make_topology(config, recipe.world_size);
  plan.model = make_model(config, plan.topology);
  plan.batch = make_batch(config, plan.topology);
  plan.optimizer = make_optimizer_plan(config);
  plan.schedule = make_schedule(config, plan.batch);
  plan.activations = make_activations(config.model);
  plan.data = make_data(config, plan.model, plan.batch);
  plan.log = make_log(recipe);
  lay_out(plan, config.ddp.bucket_size.value_or(0), split_layers(config.model, plan.topology));
  plan.recompute = make_recompute(config.model, plan.stages);
  const recipe::Optimizer& o = config.optimizer;
  if (o.optimizer_cpu_offload && o.optimizer_offload_fraction.automatic) {
    resolve_fraction(recipe, machine, plan);
  } else {
    plan.config_yaml = recipe::dump(config, &recipe);
    plan.changes = changes_text(recipe);
  }
  plan.launch = launch_line(recipe.world_size, "run_recipe", {"--recipe", recipe.name});
  if (machine.device_bytes > 0) plan.prediction += fit_text(plan, machine);
  if (can_estimate(machine)) plan.prediction += estimate_text(plan, machine);
  return plan;
}

}  // namespace rr::plan
