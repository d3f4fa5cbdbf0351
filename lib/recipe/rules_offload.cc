// Rules about activation offload and optimizer offload (reference 2.1, 2.3).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "recipe/rules.h"

namespace rr::recipe {
namespace {

constexpr const char* kOffload = "model.cpu_offloading";
constexpr const char* kLayers = "model.cpu_offloading_num_layers";

// Switched on and with something to do: 0 layers is the same as off.
bool active(const Facts& f) {
  return f.config.model.cpu_offloading && f.config.model.cpu_offloading_num_layers != 0;
}

// Layers that one stage's chunk holds; cpu_offloading_num_layers counts within it.
std::int64_t layers_per_chunk(const Model& m) {
  if (!m.cpu_offloading_with_pipeline) return m.num_layers;
  const std::int64_t chunks = m.virtual_pipeline_model_parallel_size.value_or(1);
  return m.num_layers / std::max<std::int64_t>(1, m.pipeline_model_parallel_size * chunks);
}

Verdict offload_layer_count(const Facts& f) {
  const Model& m = f.config.model;
  const std::int64_t n = m.cpu_offloading_num_layers, layers = layers_per_chunk(m);
  if (!m.cpu_offloading || m.num_layers < 1 || (n >= 0 && n < layers)) return {};
  return Finding{
      fmt::format("CPU offloading can be done only for layers less than {}: {}={}, of {} "
                  "layers",
                  layers, kLayers, n, layers),
      fmt::format("Use 0 to {}; the last layer's activations are needed at once.",
                  std::max<std::int64_t>(0, layers - 1))};
}

Verdict offload_pipeline(const Facts& f) {
  const Model& m = f.config.model;
  if (!active(f) || m.pipeline_model_parallel_size == 1 || m.cpu_offloading_with_pipeline)
    return {};
  return Finding{
      fmt::format("Currently there is no support for Pipeline parallelism with CPU offloading: "
                  "model.cpu_offloading=true and model.pipeline_model_parallel_size={}",
                  m.pipeline_model_parallel_size),
      "Use model.pipeline_model_parallel_size=1, or model.cpu_offloading_with_pipeline=true "
      "(ours; layers then count per stage)."};
}

Verdict offload_recompute(const Facts& f) {
  const Model& m = f.config.model;
  if (!active(f) || !m.recompute_granularity) return {};
  return Finding{
      fmt::format("CPU offloading does not work when activation recomputation is enabled: "
                  "model.cpu_offloading=true and model.recompute_granularity={}",
                  *m.recompute_granularity),
      "Use model.recompute_granularity=null or model.cpu_offloading=false."};
}

Verdict offload_fine_grained(const Facts& f) {
  const Model& m = f.config.model;
  if (!active(f) || !m.fine_grained_activation_offloading) return {};
  return Finding{
      "fine_grained_activation_offloading cannot be enabled with cpu_offloading.: both "
      "model.fine_grained_activation_offloading and model.cpu_offloading are true",
      "Switch one of them off."};
}

Verdict offload_graphs(const Facts& f) {
  const Model& m = f.config.model;
  if (!active(f) || (m.cuda_graph_impl != "local" && m.cuda_graph_impl != "transformer_engine")) {
    return {};
  }
  return Finding{fmt::format("CUDA graphs not supported with CPU offloading.: "
                             "model.cpu_offloading=true and model.cuda_graph_impl={}",
                             m.cuda_graph_impl),
                 "Use model.cuda_graph_impl=none or model.cpu_offloading=false."};
}

Verdict offload_nothing(const Facts& f) {
  const Model& m = f.config.model;
  if (!m.cpu_offloading || m.cpu_offloading_activations || m.cpu_offloading_weights) return {};
  return Finding{
      "CPU Offloading is enabled while it is not mentioned what to offload (weights/activations): "
      "model.cpu_offloading_activations=false and model.cpu_offloading_weights=false",
      "Use model.cpu_offloading_activations=true."};
}

Verdict offload_stash(const Facts& f) {
  if (!active(f) || !f.config.model.moe_paged_stash) return {};
  return Finding{"moe_paged_stash cannot be enabled with cpu_offloading.",
                 "Switch one of them off."};
}

Verdict offload_almost_all(const Facts& f) {
  const Model& m = f.config.model;
  const std::int64_t n = m.cpu_offloading_num_layers;
  if (!m.cpu_offloading || n < 1 || n != layers_per_chunk(m) - 1) return {};
  return Finding{fmt::format("{}={} of {} layers is not recommended, it prevents overlapping of "
                             "computation and offload/reload",
                             kLayers, n, n + 1),
                 fmt::format("Use at most {}.", n - 1)};
}

Verdict offload_weights(const Facts& f) {
  const Model& m = f.config.model;
  if (!m.cpu_offloading || !m.cpu_offloading_weights) return {};
  return Finding{
      fmt::format("Offloading weights is deprecated. Using offload_weights=True does not have any "
                  "effect.{}",
                  m.cpu_offloading_activations ? "" : " With activations off, nothing moves."),
      "Use model.cpu_offloading_weights=false and model.cpu_offloading_activations=true."};
}

Verdict offload_zero_layers(const Facts& f) {
  const Model& m = f.config.model;
  if (!m.cpu_offloading || m.cpu_offloading_num_layers != 0) return {};
  return Finding{
      "model.cpu_offloading=true with model.cpu_offloading_num_layers=0 moves nothing",
      fmt::format("Use 1 to {} layers.", std::max<std::int64_t>(1, layers_per_chunk(m) - 2))};
}

Verdict offload_unused(const Facts& f) {
  const Model& m = f.config.model;
  if (m.cpu_offloading || !f.is_set(kLayers) || m.cpu_offloading_num_layers == 0) return {};
  return Finding{fmt::format("{}={} does nothing while model.cpu_offloading=false", kLayers,
                             m.cpu_offloading_num_layers),
                 "Use model.cpu_offloading=true."};
}

Verdict fraction_range(const Facts& f) {
  const double fraction = f.config.optimizer.optimizer_offload_fraction.value;
  if (fraction >= 0 && fraction <= 1) return {};  // not nan either
  const double nearest_value = fraction > 1 ? 1 : 0;
  return Finding{fmt::format("optimizer.optimizer_offload_fraction={} is not in [0, 1]",
                             f.value("optimizer.optimizer_offload_fraction")),
                 std::isnan(fraction) ? "Use a number from 0 to 1."
                                      : fmt::format("The nearest value is {}.", nearest_value)};
}

Verdict fraction_zero(const Facts& f) {
  const Optimizer& o = f.config.optimizer;
  const Fraction& fraction = o.optimizer_offload_fraction;
  if (!o.optimizer_cpu_offload || fraction.automatic || fraction.value != 0) return {};
  return Finding{
      "optimizer.optimizer_cpu_offload=true with optimizer.optimizer_offload_fraction=0 moves "
      "nothing",
      "Use optimizer.optimizer_offload_fraction=1.0 to move everything."};
}

Verdict fraction_unused(const Facts& f) {
  const Optimizer& o = f.config.optimizer;
  const Fraction& fraction = o.optimizer_offload_fraction;
  if (o.optimizer_cpu_offload || !(fraction.automatic || fraction.value > 0)) return {};
  return Finding{fmt::format("optimizer.optimizer_offload_fraction={} does nothing while "
                             "optimizer.optimizer_cpu_offload=false",
                             f.value("optimizer.optimizer_offload_fraction")),
                 "Use optimizer.optimizer_cpu_offload=true."};
}

Verdict overlap_unused(const Facts& f) {
  const Optimizer& o = f.config.optimizer;
  if (o.optimizer_cpu_offload || !o.overlap_cpu_optimizer_d2h_h2d) return {};
  return Finding{
      "optimizer.overlap_cpu_optimizer_d2h_h2d=true does nothing while "
      "optimizer.optimizer_cpu_offload=false",
      "Use optimizer.optimizer_cpu_offload=true."};
}

Verdict decoupled(const Facts& f) {
  const Optimizer& o = f.config.optimizer;
  if (!o.optimizer_cpu_offload || o.decoupled_weight_decay) return {};
  return Finding{
      "CPU offloading only supported with decoupled_weight_decay enabled (AdamW mode).: "
      "optimizer.decoupled_weight_decay=false",
      "Use optimizer.decoupled_weight_decay=true."};
}

Verdict offload_kind(const Facts& f) {
  const Optimizer& o = f.config.optimizer;
  if (!o.optimizer_cpu_offload || o.optimizer == "adam") return {};
  return Finding{fmt::format("optimizer.optimizer_cpu_offload=true works with adam only, not with "
                             "optimizer.optimizer={}",
                             o.optimizer),
                 "Use optimizer.optimizer=adam."};
}

Verdict two_offloads(const Facts& f) {
  const Optimizer& o = f.config.optimizer;
  if (!o.optimizer_cpu_offload ||
      !(o.chunked_optimizer_state_offload || o.offload_optimizer_states)) {
    return {};
  }
  return Finding{"optimizer_cpu_offload and chunked_optimizer_state_offload exclude each other",
                 "Keep optimizer.optimizer_cpu_offload=true alone."};
}

Verdict offload_fsdp(const Facts& f) {
  const bool fsdp = f.config.ddp.use_megatron_fsdp || f.config.dist.use_megatron_fsdp;
  if (!f.config.optimizer.optimizer_cpu_offload || !fsdp) return {};
  return Finding{"MFSDP V2 does not support optimizer CPU offload.",
                 "Use ddp.use_megatron_fsdp=false."};
}

}  // namespace

const std::vector<Rule>& offload_rules() {
  static constexpr auto kError = Severity::error;
  static constexpr auto kWarning = Severity::warning;
  static const std::vector<Rule> rules = {
      {kError,
       {kLayers, kOffload, "model.num_layers"},
       "cpu_offloading moves 0 to num_layers - 1 layers",
       offload_layer_count},
      {kError,
       {kOffload, "model.pipeline_model_parallel_size", "model.cpu_offloading_with_pipeline"},
       "cpu_offloading needs one pipeline stage, or cpu_offloading_with_pipeline",
       offload_pipeline},
      {kError,
       {kOffload, "model.recompute_granularity"},
       "cpu_offloading and recompute exclude each other",
       offload_recompute},
      {kError,
       {kOffload, "model.fine_grained_activation_offloading"},
       "cpu_offloading and fine_grained_activation_offloading exclude each other",
       offload_fine_grained},
      {kError,
       {kOffload, "model.cuda_graph_impl"},
       "cpu_offloading excludes CUDA graphs other than full_iteration",
       offload_graphs},
      {kError,
       {"model.cpu_offloading_activations", "model.cpu_offloading_weights", kOffload},
       "cpu_offloading has something to move",
       offload_nothing},
      {kError,
       {"model.moe_paged_stash", kOffload},
       "cpu_offloading and moe_paged_stash exclude each other",
       offload_stash},
      {kError,
       {"optimizer.optimizer_offload_fraction"},
       "the fraction is in [0, 1]",
       fraction_range},
      {kError,
       {"optimizer.decoupled_weight_decay", "optimizer.optimizer_cpu_offload"},
       "optimizer offload needs decoupled weight decay",
       decoupled},
      {kError,
       {"optimizer.optimizer", "optimizer.optimizer_cpu_offload"},
       "optimizer offload needs adam",
       offload_kind},
      {kError,
       {"optimizer.optimizer_cpu_offload", "optimizer.chunked_optimizer_state_offload",
        "optimizer.offload_optimizer_states"},
       "the two optimizer offloads exclude each other",
       two_offloads},
      {kError,
       {"optimizer.optimizer_cpu_offload", "ddp.use_megatron_fsdp"},
       "optimizer offload excludes FSDP",
       offload_fsdp},
      {kWarning,
       {kLayers, kOffload, "model.num_layers"},
       "with num_layers - 1 layers moved, nothing is left to hide the copies",
       offload_almost_all},
      {kWarning,
       {"model.cpu_offloading_weights", kOffload},
       "weights are never moved by cpu_offloading",
       offload_weights},
      {kWarning,
       {kOffload, kLayers},
       "cpu_offloading with 0 layers moves nothing",
       offload_zero_layers},
      {kWarning,
       {kLayers, kOffload},
       "a layer count without cpu_offloading does nothing",
       offload_unused},
      {kWarning,
       {"optimizer.optimizer_cpu_offload", "optimizer.optimizer_offload_fraction"},
       "optimizer offload with fraction 0 moves nothing",
       fraction_zero},
      {kWarning,
       {"optimizer.optimizer_offload_fraction", "optimizer.optimizer_cpu_offload"},
       "a fraction without optimizer_cpu_offload does nothing",
       fraction_unused},
      {kWarning,
       {"optimizer.overlap_cpu_optimizer_d2h_h2d", "optimizer.optimizer_cpu_offload"},
       "overlap without optimizer_cpu_offload does nothing",
       overlap_unused},
  };
  return rules;
}

}  // namespace rr::recipe
