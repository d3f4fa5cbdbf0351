// Rules about how a model is cut over ranks (reference 2.4).
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/text.h"
#include "recipe/rules.h"

namespace rr::recipe {
namespace {

struct Sizes {
  std::int64_t tp, pp, cp, ep, etp, world;
  std::int64_t dense() const { return tp * pp * cp; }
  std::int64_t expert() const { return etp * ep * pp; }
};

Sizes sizes(const Facts& f) {
  const Model& m = f.config.model;
  return {m.tensor_model_parallel_size,
          m.pipeline_model_parallel_size,
          m.context_parallel_size,
          m.expert_model_parallel_size,
          m.expert_tensor_parallel_size.value_or(m.tensor_model_parallel_size),
          f.world};
}

std::string arithmetic(const Sizes& s) {
  return fmt::format("world = TP*PP*CP*DP = {}*{}*{}*DP and ETP*EP*PP*EDP = {}*{}*{}*EDP", s.tp,
                     s.pp, s.cp, s.etp, s.ep, s.pp);
}

bool fits(const Facts& f, const Sizes& s, std::int64_t world) {
  if (world % s.dense() != 0 || world % s.expert() != 0) return false;
  const Train& t = f.config.train;
  // A global batch that only follows from the world fits any world.
  if (f.origin("train.global_batch_size") == OriginKind::derived) return true;
  return *t.global_batch_size % (*t.micro_batch_size * (world / s.dense())) == 0;
}

// "World sizes that fit: 4, 8, 16."
std::string fitting_worlds(const Facts& f, const Sizes& s) {
  if (s.dense() > 1 << 20 || s.expert() > 1 << 20) return "Use smaller parallel sizes.";
  const std::int64_t step = std::lcm(s.dense(), s.expert());
  std::vector<std::string> worlds;
  for (std::int64_t n = 1; n <= 4096 && worlds.size() < 8; ++n) {
    if (fits(f, s, step * n)) worlds.push_back(fmt::format("{}", step * n));
  }
  if (worlds.empty()) return "";
  return fmt::format("World sizes that fit: {}.", join(worlds, ", "));
}

Verdict world_dense(const Facts& f) {
  const Sizes s = sizes(f);
  if (s.world % s.dense() == 0) return {};
  return Finding{fmt::format("world_size ({}) is not divisible by {} (total_model_size): {}",
                             s.world, s.dense(), arithmetic(s)),
                 fitting_worlds(f, s)};
}

Verdict world_expert(const Facts& f) {
  const Sizes s = sizes(f);
  if (s.world % s.dense() != 0 || s.world % s.expert() == 0) return {};
  return Finding{fmt::format("world_size ({}) is not divisible by "
                             "expert_tensor_model_pipeline_parallel size ({}): {}",
                             s.world, s.expert(), arithmetic(s)),
                 fitting_worlds(f, s)};
}

Verdict layers_split(const Facts& f) {
  const Model& m = f.config.model;
  if (m.pipeline_model_parallel_layout || m.num_layers < 1) return {};
  const std::int64_t pp = m.pipeline_model_parallel_size;
  const std::int64_t chunks = m.virtual_pipeline_model_parallel_size.value_or(1);
  if (pp == 1) return {};
  const auto first = m.num_layers_in_first_pipeline_stage,
             last = m.num_layers_in_last_pipeline_stage;
  // Another rule says so.
  const auto is_edge = [&m](const OptInt& n) { return !n || (*n > 0 && *n <= m.num_layers); };
  if (!is_edge(first) || !is_edge(last)) return {};
  std::int64_t layers = m.num_layers - first.value_or(0) - last.value_or(0);
  layers += (m.account_for_embedding_in_pipeline_split ? 1 : 0) +
            (m.account_for_loss_in_pipeline_split ? 1 : 0);
  const std::int64_t stages = pp - (first ? 1 : 0) - (last ? 1 : 0);
  const std::int64_t parts = stages * chunks;
  if (stages == 0 ? layers == 0 : layers >= parts && layers % parts == 0) return {};
  std::vector<std::string> good;
  for (std::int64_t n = 1; n <= std::min<std::int64_t>(m.num_layers, 64); ++n) {
    if (m.num_layers % n == 0) good.push_back(fmt::format("{}", n));
  }
  return Finding{
      fmt::format("{} layers cannot be split evenly: {} remain for {} stages of {} chunks, so that "
                  "the number of layers should be divisible by the pipeline size",
                  m.num_layers, layers, stages, chunks),
      fmt::format("Pipeline sizes that fit {} layers: {}; or set "
                  "model.num_layers_in_first_pipeline_stage or "
                  "model.num_layers_in_last_pipeline_stage.",
                  m.num_layers, join(good, ", "))};
}

Verdict edge_stages(const Facts& f) {
  const Model& m = f.config.model;
  for (const auto& [value, name] :
       {std::pair{m.num_layers_in_first_pipeline_stage, "num_layers_in_first_pipeline_stage"},
        std::pair{m.num_layers_in_last_pipeline_stage, "num_layers_in_last_pipeline_stage"}}) {
    if (value && *value <= 0) {
      return Finding{fmt::format("{} must be larger than 0: it is {}", name, *value),
                     "Leave it out for an equal share."};
    }
    if (value && *value > m.num_layers) {
      return Finding{fmt::format("{}={} of {} layers", name, *value, m.num_layers),
                     "Leave it out for an equal share."};
    }
    if (value && m.pipeline_model_parallel_size == 1 && *value != m.num_layers) {
      return Finding{fmt::format("{}={} with one pipeline stage", name, *value), "Leave it out."};
    }
  }
  return {};
}

Verdict edge_and_account(const Facts& f) {
  const Model& m = f.config.model;
  const bool edge = m.num_layers_in_first_pipeline_stage || m.num_layers_in_last_pipeline_stage;
  const bool account =
      m.account_for_embedding_in_pipeline_split || m.account_for_loss_in_pipeline_split;
  if (!edge || !account) return {};
  return Finding{
      "num_layers_in_first_pipeline_stage and num_layers_in_last_pipeline_stage cannot be set at "
      "the "
      "same time with account_for_embedding_in_pipeline_split and "
      "account_for_loss_in_pipeline_split",
      "Keep one of the two."};
}

Verdict layout_alone(const Facts& f) {
  const Model& m = f.config.model;
  if (!m.pipeline_model_parallel_layout) return {};
  const bool other = m.num_layers_in_first_pipeline_stage || m.num_layers_in_last_pipeline_stage ||
                     m.account_for_embedding_in_pipeline_split ||
                     m.account_for_loss_in_pipeline_split;
  if (!other) return {};
  return Finding{
      "pipeline_model_parallel_layout cannot be set with other pipeline layout arguments.",
      "Keep model.pipeline_model_parallel_layout alone."};
}

Verdict virtual_needs_pipeline(const Facts& f) {
  const Model& m = f.config.model;
  if (!m.virtual_pipeline_model_parallel_size || m.pipeline_model_parallel_size > 1) return {};
  return Finding{
      fmt::format(
          "pipeline-model-parallel size should be greater than 1 with interleaved schedule: "
          "model.virtual_pipeline_model_parallel_size={} with one stage",
          *m.virtual_pipeline_model_parallel_size),
      "Use model.virtual_pipeline_model_parallel_size=null."};
}

Verdict virtual_group(const Facts& f) {
  const Model& m = f.config.model;
  const Sizes s = sizes(f);
  if (!m.virtual_pipeline_model_parallel_size || s.pp < 2 || s.world % s.dense() != 0) return {};
  const std::int64_t data = s.world / s.dense();
  const std::int64_t batches =
      *f.config.train.global_batch_size / (*f.config.train.micro_batch_size * data);
  const std::int64_t group = m.microbatch_group_size_per_vp_stage.value_or(s.pp);
  if (group < s.pp || group > batches) {
    return Finding{
        fmt::format(
            "The number of contiguous micro-batches in a virtual pipeline stageshould range "
            "in [PP={}, M={}]: it is {}",
            s.pp, batches, group),
        batches < s.pp ? "Use a larger train.global_batch_size." : "Use the pipeline size."};
  }
  const std::int64_t rest = batches % group;
  if (rest > 0 && rest < s.pp) {
    return Finding{
        fmt::format("The remainder of M (the total micro-batches) divided by N (number of "
                    "contiguous micro-batches in a virtual pipeline stage) should be 0, "
                    "or larger than or equal to the pipeline-parallel size: {} mod {} = {}",
                    batches, group, rest),
        fmt::format("Use {} or {} micro-batches.", batches - rest, batches - rest + group)};
  }
  return {};
}

Verdict sequence_parallel(const Facts& f) {
  const Model& m = f.config.model;
  if (!m.sequence_parallel || m.tensor_model_parallel_size > 1) return {};
  return Finding{
      "Cannot use sequence parallelism without tensor parallelism: "
      "model.sequence_parallel=true and model.tensor_model_parallel_size=1",
      "Use model.sequence_parallel=false."};
}

Verdict expert_tensor_sequence(const Facts& f) {
  const Model& m = f.config.model;
  const bool both = m.expert_model_parallel_size > 1 && m.tensor_model_parallel_size > 1;
  if (!both || m.sequence_parallel) return {};
  return Finding{
      "During training, performance may degrade if MoE and tensor parallelismare enabled without "
      "also enabling sequence parallelism.",
      "Use model.sequence_parallel=true."};
}

Verdict rank_order(const Facts& f) {
  const Sizes s = sizes(f);
  if (!f.config.dist.use_tp_pp_dp_mapping || s.pp == 1 || s.world % s.dense() != 0 ||
      s.world % s.expert() != 0) {
    return {};
  }
  const std::int64_t data = s.world / s.dense(), expert_data = s.world / s.expert();
  if (data == expert_data) return {};
  return Finding{fmt::format("When not using pp-last rank ordering, the data parallel size of the "
                             "attention and moe layers must be the same: {} and {}",
                             data, expert_data),
                 "Use dist.use_tp_pp_dp_mapping=false."};
}

Verdict peer_to_peer(const Facts& f) {
  const Model& m = f.config.model;
  if (!m.overlap_p2p_comm || !m.batch_p2p_comm) return {};
  // batch_p2p_comm is on by default; the reference turns it off with the overlap.
  if (!f.is_set("model.batch_p2p_comm")) return {};
  return Finding{"Can not use both overlap_p2p_comm and batch_p2p_comm",
                 "Use model.batch_p2p_comm=false."};
}

Verdict warmup_flush(const Facts& f) {
  const Model& m = f.config.model;
  if (!m.overlap_p2p_comm_warmup_flush || m.overlap_p2p_comm) return {};
  return Finding{
      "Pipeline parallel communication overlapping in warmup and flush is only compatible with "
      "overlap_p2p_comm but not batch_p2p_comm.",
      "Use model.overlap_p2p_comm=true."};
}

Verdict tensor_divides(const Facts& f) {
  const Model& m = f.config.model;
  const std::int64_t tp = m.tensor_model_parallel_size;
  if (tp == 1 || m.num_attention_heads < 1) return {};
  const auto legal = [&] {
    std::vector<std::string> good;
    for (std::int64_t n = 1; n <= 64; ++n) {
      const std::int64_t groups = m.num_query_groups.value_or(m.num_attention_heads);
      const bool heads_fit = m.num_attention_heads % n == 0 && (groups % n == 0 || n % groups == 0);
      if (heads_fit && m.ffn_hidden_size.value_or(n) % n == 0) good.push_back(fmt::format("{}", n));
    }
    return fmt::format("Tensor parallel sizes that fit: {}.", join(good, ", "));
  };
  if (m.num_attention_heads % tp != 0) {
    return Finding{
        fmt::format(
            "num_attention_heads ({}) must be a multiple of tensor_model_parallel_size ({}).",
            m.num_attention_heads, tp),
        legal()};
  }
  const std::int64_t groups = m.num_query_groups.value_or(m.num_attention_heads);
  if (groups % tp != 0 && tp % groups != 0) {
    return Finding{fmt::format("num_query_groups ({}) must be a multiple or divisor of "
                               "tensor_model_parallel_size ({}).",
                               groups, tp),
                   legal()};
  }
  if (m.ffn_hidden_size && *m.ffn_hidden_size % tp != 0) {
    return Finding{fmt::format("ffn_hidden_size ({}) must be a multiple of "
                               "tensor_model_parallel_size ({}).",
                               *m.ffn_hidden_size, tp),
                   legal()};
  }
  return {};
}

Verdict context_divides(const Facts& f) {
  const Model& m = f.config.model;
  const std::int64_t cp = m.context_parallel_size;
  if (cp == 1 || m.seq_length % (2 * cp) == 0) return {};
  const std::int64_t unit = 2 * cp;
  return Finding{
      fmt::format("Sequence length must be divisible by 2 * context parallel size: {} is "
                  "not divisible by {}",
                  m.seq_length, unit),
      fmt::format("Use {} or {}.", std::max(unit, m.seq_length / unit * unit),
                  (m.seq_length / unit + 1) * unit)};
}

}  // namespace

const std::vector<Rule>& parallel_rules() {
  static constexpr auto kError = Severity::error;
  static constexpr const char* kTp = "model.tensor_model_parallel_size";
  static constexpr const char* kPp = "model.pipeline_model_parallel_size";
  static constexpr const char* kCp = "model.context_parallel_size";
  static constexpr const char* kEp = "model.expert_model_parallel_size";
  static constexpr const char* kFirst = "model.num_layers_in_first_pipeline_stage";
  static constexpr const char* kLast = "model.num_layers_in_last_pipeline_stage";
  static constexpr const char* kVpp = "model.virtual_pipeline_model_parallel_size";
  static const std::vector<Rule> rules = {
      {kError,
       {"dist.world_size", kTp, kPp, kCp},
       "the world is a multiple of TP*PP*CP",
       world_dense},
      {kError,
       {"dist.world_size", kEp, "model.expert_tensor_parallel_size", kPp},
       "the world is a multiple of ETP*EP*PP",
       world_expert},
      {kError,
       {kPp, "model.num_layers", kVpp, kFirst, kLast},
       "the layers split evenly over stages and chunks",
       layers_split},
      {kError, {kFirst, kLast}, "the first and the last stage have layers", edge_stages},
      {kError,
       {kFirst, kLast, "model.account_for_embedding_in_pipeline_split",
        "model.account_for_loss_in_pipeline_split"},
       "edge stage sizes and account_for_* exclude each other",
       edge_and_account},
      {kError,
       {"model.pipeline_model_parallel_layout", kFirst, kLast},
       "a layout excludes other split keys",
       layout_alone},
      {kError, {kVpp, kPp}, "an interleaved schedule needs several stages", virtual_needs_pipeline},
      {kError,
       {"model.microbatch_group_size_per_vp_stage", kVpp, "train.global_batch_size"},
       "the micro-batch group of an interleaved schedule is in [PP, M]",
       virtual_group},
      {kError,
       {"model.sequence_parallel", kTp},
       "sequence parallelism needs tensor parallelism",
       sequence_parallel},
      {Severity::warning,
       {"model.sequence_parallel", kEp, kTp},
       "experts with tensor parallelism want sequence parallelism",
       expert_tensor_sequence},
      {kError,
       {"dist.use_tp_pp_dp_mapping", kPp, kEp},
       "another rank order needs DP and EDP equal",
       rank_order},
      {kError,
       {"model.overlap_p2p_comm", "model.batch_p2p_comm"},
       "overlapped and batched sends exclude each other",
       peer_to_peer},
      {kError,
       {"model.overlap_p2p_comm_warmup_flush", "model.overlap_p2p_comm"},
       "overlap in warm-up and flush needs overlap_p2p_comm",
       warmup_flush},
      {kError,
       {kTp, "model.num_attention_heads", "model.num_query_groups", "model.ffn_hidden_size"},
       "TP divides heads, query groups and the feed-forward width",
       tensor_divides},
      {kError, {"model.seq_length", kCp}, "2*CP divides the sequence", context_divides},
  };
  return rules;
}

}  // namespace rr::recipe
