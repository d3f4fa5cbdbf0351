// Rules about batches, the length of a run, the schedule of the learning rate and the data.
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "recipe/rules.h"
#include "recipe/scalar.h"

namespace rr::recipe {
namespace {

// 0 when the world does not fit at all.
std::int64_t data_parallel(const Facts& f) {
  const Model& m = f.config.model;
  const std::int64_t ranks =
      m.tensor_model_parallel_size * m.pipeline_model_parallel_size * m.context_parallel_size;
  return f.world % ranks == 0 ? f.world / ranks : 0;
}

std::string nearest_multiples(std::int64_t value, std::int64_t unit, const char* key) {
  const std::int64_t below = value / unit * unit;
  if (below == 0) return fmt::format("Use {}={}.", key, unit);
  return fmt::format("Use {}={} or {}.", key, below, below + unit);
}

Verdict global_batch(const Facts& f) {
  const std::int64_t data = data_parallel(f);
  if (data == 0) return {};
  const Train& t = f.config.train;
  const std::int64_t global = *t.global_batch_size, micro = *t.micro_batch_size;
  if (global % (micro * data) == 0) return {};
  return Finding{
      fmt::format("global batch size ({}) is not divisible by micro batch size ({}) times data "
                  "parallel size ({}): global batch = micro-batch * DP * n = {} * {} * n",
                  global, micro, data, micro, data),
      nearest_multiples(global, micro * data, "train.global_batch_size")};
}

Verdict eval_batch(const Facts& f) {
  const std::int64_t data = data_parallel(f);
  const Validation& v = f.config.validation;
  if (data == 0 || v.eval_iters == 0 || !v.eval_interval) return {};
  const std::int64_t global = *v.eval_global_batch_size, micro = *v.eval_micro_batch_size;
  if (global % (micro * data) == 0) return {};
  // When both follow from train, that rule has said it.
  if (!f.is_set("validation.eval_global_batch_size") &&
      !f.is_set("validation.eval_micro_batch_size")) {
    return {};
  }
  return Finding{
      fmt::format("eval_global_batch_size ({}) must be divisible by eval_micro_batch_size "
                  "({}) times data parallel size ({})",
                  global, micro, data),
      nearest_multiples(global, micro * data, "validation.eval_global_batch_size")};
}

Verdict run_length(const Facts& f) {
  const Train& t = f.config.train;
  const bool iters = f.is_set("train.train_iters") && t.train_iters.has_value();
  const bool samples = t.train_samples.has_value();
  const int given = (iters ? 1 : 0) + (samples ? 1 : 0) + (t.num_epochs ? 1 : 0);
  // A resolved recipe carries both and they agree.
  const bool agree = iters && samples && !t.num_epochs && t.train_iters &&
                     *t.train_iters == *t.train_samples / *t.global_batch_size;
  if (given == 1 || agree) return {};
  if (given == 0 && !t.train_iters) {
    return Finding{"one of train.train_iters, train.train_samples and train.num_epochs must be set",
                   "Set train.train_iters."};
  }
  return Finding{fmt::format("only one of train.train_iters={}, train.train_samples={} and "
                             "train.num_epochs={} can be set",
                             f.value("train.train_iters"), f.value("train.train_samples"),
                             f.value("train.num_epochs")),
                 "Keep train.train_iters alone."};
}

Verdict sequence_lengths(const Facts& f) {
  const Config& c = f.config;
  if (c.dataset.seq_length == c.model.seq_length) return {};
  return Finding{fmt::format("Please ensure sequence length configuration in model config and "
                             "dataset config match.: model.seq_length={} and dataset.seq_length={}",
                             c.model.seq_length, *c.dataset.seq_length),
                 "Leave one of them out; it then follows."};
}

Verdict warmup_kinds(const Facts& f) {
  const Scheduler& s = f.config.scheduler;
  if (!s.lr_warmup_fraction || (s.lr_warmup_iters == 0 && s.lr_warmup_samples == 0)) return {};
  return Finding{
      "lr_warmup_fraction and lr_warmup_iters/lr_warmup_samples cannot both be specified: " +
          f.show("scheduler.lr_warmup_fraction") + ", " + f.show("scheduler.lr_warmup_iters") +
          ", " + f.show("scheduler.lr_warmup_samples"),
      "Keep one."};
}

Verdict schedule_units(const Facts& f) {
  const Scheduler& s = f.config.scheduler;
  const bool by_samples = f.config.train.train_samples.has_value();
  const bool samples = s.lr_decay_samples || s.lr_wsd_decay_samples || s.lr_warmup_samples > 0;
  const bool iters = s.lr_decay_iters || s.lr_wsd_decay_iters || s.lr_warmup_iters > 0;
  if (by_samples ? !iters : !samples) return {};
  return Finding{
      by_samples ? "only sample-based learning rate settings go with train.train_samples: "
                   "lr_decay_iters, lr_wsd_decay_iters and lr_warmup_iters must not be set"
                 : "only iteration-based learning rate settings go with train.train_iters: "
                   "lr_decay_samples, lr_wsd_decay_samples and lr_warmup_samples must not be set",
      by_samples ? "Use the keys that end in _samples." : "Use the keys that end in _iters."};
}

Verdict wsd_length(const Facts& f) {
  const Scheduler& s = f.config.scheduler;
  if (s.lr_decay_style != "WSD") return {};
  if (!s.lr_wsd_decay_iters && !s.lr_wsd_decay_samples) {
    return Finding{"scheduler.lr_decay_style=WSD needs the length of its decay",
                   "Set scheduler.lr_wsd_decay_iters."};
  }
  if (s.lr_wsd_decay_iters && s.lr_decay_iters && *s.lr_wsd_decay_iters > *s.lr_decay_iters) {
    return Finding{fmt::format("scheduler.lr_wsd_decay_iters={} is longer than "
                               "scheduler.lr_decay_iters={}",
                               *s.lr_wsd_decay_iters, *s.lr_decay_iters),
                   fmt::format("Use at most {}.", *s.lr_decay_iters)};
  }
  return {};
}

Verdict schedule_length(const Facts& f) {
  const Scheduler& s = f.config.scheduler;
  const auto iters = f.config.train.train_iters;
  if (!s.max_steps || !iters || *s.max_steps >= *iters) return {};
  return Finding{fmt::format("scheduler.max_steps={} must be at least train.train_iters={}",
                             *s.max_steps, *iters),
                 "Leave scheduler.max_steps out."};
}

Verdict scheduler_source(const Facts& f) {
  const Scheduler& s = f.config.scheduler;
  if (!s.override_opt_param_scheduler || !s.use_checkpoint_opt_param_scheduler) return {};
  return Finding{
      "both override and use-checkpoint are set: scheduler.override_opt_param_scheduler "
      "and scheduler.use_checkpoint_opt_param_scheduler",
      "Keep one."};
}

Verdict decay_ramp(const Facts& f) {
  const Scheduler& s = f.config.scheduler;
  if (s.weight_decay_incr_style != "constant") {
    if (*s.start_weight_decay <= *s.end_weight_decay) return {};
    return Finding{fmt::format("scheduler.start_weight_decay={} is above "
                               "scheduler.end_weight_decay={}",
                               *s.start_weight_decay, *s.end_weight_decay),
                   "Weight decay can only grow."};
  }
  if (s.start_weight_decay == s.end_weight_decay) return {};
  return Finding{fmt::format("scheduler.weight_decay_incr_style=constant, but "
                             "start_weight_decay={} and end_weight_decay={}",
                             *s.start_weight_decay, *s.end_weight_decay),
                 "Make them equal or use linear or cosine."};
}

Verdict weight_decay_unused(const Facts& f) {
  const Scheduler& s = f.config.scheduler;
  const double applied = *s.start_weight_decay;
  if (!f.is_set("optimizer.weight_decay") || !f.is_set("scheduler.start_weight_decay")) return {};
  if (f.config.optimizer.weight_decay == applied) return {};
  return Finding{fmt::format("optimizer.weight_decay={} does nothing: the scheduler sets {}",
                             f.config.optimizer.weight_decay, applied),
                 ""};
}

// "0:768 250B:1536": tokens seen, global batch size.
Verdict batch_schedule(const Facts& f) {
  const auto& schedule = f.config.train.step_batch_size_schedule;
  if (!schedule) return {};
  const auto refuse = [&](const std::string& what) {
    return Finding{fmt::format("{}: train.step_batch_size_schedule={}", what,
                               f.value("train.step_batch_size_schedule")),
                   "Write tokens and sizes such as \"0:768 250B:1536\"."};
  };
  double last = -1;
  for (std::size_t begin = 0; begin < schedule->size();) {
    const std::size_t end = std::min(schedule->find(' ', begin), schedule->size());
    const std::string entry = schedule->substr(begin, end - begin);
    begin = end + 1;
    if (entry.empty()) continue;
    const std::size_t colon = std::min(entry.find(':'), entry.size());
    std::string tokens = entry.substr(0, colon);
    const std::size_t unit =
        tokens.empty() ? std::string::npos : std::string("KMBT").find(tokens.back());
    if (unit != std::string::npos) tokens.pop_back();
    const Node threshold = plain_scalar(tokens);
    const Node size = plain_scalar(colon < entry.size() ? entry.substr(colon + 1) : "");
    const bool number = threshold.kind == Kind::integer || threshold.kind == Kind::real;
    if (!number || size.kind != Kind::integer || size.integer < 1) {
      return refuse(fmt::format("Invalid schedule entry '{}'", entry));
    }
    double value =
        threshold.kind == Kind::real ? threshold.real : static_cast<double>(threshold.integer);
    for (std::size_t i = 0; unit != std::string::npos && i <= unit; ++i) value *= 1000;
    if (last < 0 && value != 0) return refuse("first schedule entry must have threshold 0");
    if (value <= last) return refuse("schedule thresholds must be strictly increasing");
    last = value;
  }
  if (last < 0) return refuse("Invalid schedule entry ''");
  if (f.config.train.decrease_batch_size_if_needed) {
    return refuse("a batch size schedule excludes train.decrease_batch_size_if_needed");
  }
  return {};
}

Verdict data_source(const Facts& f) {
  const Dataset& d = f.config.dataset;
  const bool own_blend = d.blend && f.origin("dataset.blend") != OriginKind::derived;
  if ((own_blend && d.blend_per_split) || (d.data_path && d.blend_per_split)) {
    return Finding{"dataset.blend or dataset.data_path cannot be set with dataset.blend_per_split",
                   "Keep one of them."};
  }
  for (const auto* blend : {d.blend ? &*d.blend : nullptr}) {
    if (blend == nullptr) continue;
    if (blend->prefixes.empty())
      return Finding{"dataset.blend names no data", "Use null for mock data."};
    if (blend->weights && blend->weights->size() != blend->prefixes.size()) {
      return Finding{fmt::format("dataset.blend has {} prefixes and {} weights",
                                 blend->prefixes.size(), blend->weights->size()),
                     "Give one weight per prefix, or null."};
    }
  }
  if (d.data_path && !d.blend && !d.blend_per_split) {
    return Finding{"dataset.data_path names no data", "Use null for mock data."};
  }
  return {};
}

Verdict split_shares(const Facts& f) {
  const std::string& split = f.config.dataset.split;
  double sum = 0;
  int parts = 0;
  std::size_t begin = 0;
  while (begin <= split.size()) {
    const std::size_t end = std::min(split.find_first_of(",/", begin), split.size());
    std::string part = split.substr(begin, end - begin);
    std::erase(part, ' ');
    const Node value = plain_scalar(part);
    const bool number = value.kind == Kind::integer || value.kind == Kind::real;
    const double share = value.kind == Kind::real ? value.real : static_cast<double>(value.integer);
    if (!number || !(share >= 0) || share > 1e15) {
      return Finding{fmt::format("dataset.split=\"{}\": '{}' is not a share", split, part),
                     "Use three numbers such as 9999,8,2."};
    }
    sum += share;
    ++parts;
    begin = end + 1;
  }
  if (parts > 3 || !(sum > 0)) {
    return Finding{fmt::format("dataset.split=\"{}\" is not a split", split),
                   "Use three numbers such as 9999,8,2."};
  }
  return {};
}

}  // namespace

const std::vector<Rule>& batch_rules() {
  static constexpr auto kError = Severity::error;
  static constexpr const char* kBatch = "train.global_batch_size";
  static constexpr const char* kIters = "train.train_iters";
  static const std::vector<Rule> rules = {
      {kError,
       {kBatch, "train.micro_batch_size", "dist.world_size"},
       "the global batch is micro-batch * DP * n",
       global_batch},
      {kError,
       {"validation.eval_global_batch_size", "validation.eval_micro_batch_size"},
       "the evaluation batch is its micro-batch * DP * n",
       eval_batch},
      {kError,
       {"train.step_batch_size_schedule", "train.decrease_batch_size_if_needed"},
       "a batch size schedule starts at 0 and rises",
       batch_schedule},
      {kError,
       {kIters, "train.train_samples", "train.num_epochs"},
       "one length of the run is set",
       run_length},
      {kError,
       {"model.seq_length", "dataset.seq_length"},
       "the two sequence lengths are equal",
       sequence_lengths},
      {kError,
       {"scheduler.lr_warmup_fraction", "scheduler.lr_warmup_iters", "scheduler.lr_warmup_samples"},
       "the warm-up is given once",
       warmup_kinds},
      {kError,
       {"scheduler.lr_decay_samples", "scheduler.lr_warmup_samples",
        "scheduler.lr_wsd_decay_samples", "scheduler.lr_decay_iters", "scheduler.lr_warmup_iters",
        "scheduler.lr_wsd_decay_iters", "train.train_samples"},
       "the schedule counts as the run's length does",
       schedule_units},
      {kError,
       {"scheduler.lr_wsd_decay_iters", "scheduler.lr_decay_style"},
       "WSD has a decay that fits",
       wsd_length},
      {kError, {"scheduler.max_steps", kIters}, "max_steps covers the run", schedule_length},
      {kError,
       {"scheduler.override_opt_param_scheduler", "scheduler.use_checkpoint_opt_param_scheduler"},
       "the schedule has one source on resume",
       scheduler_source},
      {kError,
       {"scheduler.start_weight_decay", "scheduler.end_weight_decay",
        "scheduler.weight_decay_incr_style"},
       "weight decay goes from start to end as its style says",
       decay_ramp},
      {Severity::warning,
       {"optimizer.weight_decay", "scheduler.start_weight_decay"},
       "the scheduler's weight decay is the one applied",
       weight_decay_unused},
      {kError,
       {"dataset.blend", "dataset.data_path", "dataset.blend_per_split"},
       "the data are named once",
       data_source},
      {kError, {"dataset.split"}, "the split is up to three shares", split_shares},
  };
  return rules;
}

}  // namespace rr::recipe
