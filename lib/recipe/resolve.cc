// Values that follow from other values.
//
// A value is only derived over a default or a preset; where a person set it, it must agree.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "recipe/facts.h"
#include "recipe/scalar.h"
#include "recipe/tree.h"

namespace rr::recipe {
namespace {

class Resolver {
 public:
  Resolver(Facts& facts, std::vector<Problem>* problems) : facts_(facts), problems_(problems) {}

  // An unset optional takes `value`.
  template <class T>
  void fill(std::optional<T>& member, const char* key, const T& value, const char* from) {
    if (member) return;
    member = value;
    note(key, from);
  }

  // `key` must be `value` because of `from`.
  template <class Member, class T>
  void derive(Member& member, const char* key, const T& value, const std::string& from) {
    if (member == Member(value)) return;
    if (facts_.is_set(key) && !is_null(member)) {
      problems_->push_back({Severity::error, key, facts_.where(key),
                            fmt::format("{} contradicts {}", facts_.show(key), facts_.show(from)),
                            fmt::format("Leave one of them out; {} then follows.", key)});
      return;
    }
    member = value;
    note(key, from);
  }

  // As derive, but a value that a person set stands: a rule says what comes of it.
  template <class Member, class T>
  void suggest(Member& member, const char* key, const T& value, const std::string& from) {
    if (facts_.is_set(key) || member == Member(value)) return;
    member = value;
    note(key, from);
  }

  // Two names of one switch: the one that is set decides.
  void twins(bool& a, const char* key_a, bool& b, const char* key_b) {
    if (facts_.is_set(key_a)) {
      derive(b, key_b, a, key_a);
    } else if (facts_.is_set(key_b)) {
      derive(a, key_a, b, key_b);
    }
  }

  // An explicit null asks for the derived value.
  template <class T>
  static bool is_null(const std::optional<T>& member) {
    return !member;
  }
  template <class T>
  static bool is_null(const T&) {
    return false;
  }

  void note(const char* key, const std::string& from) {
    facts_.origins[key] = {OriginKind::derived, from};
  }
  void warn(const char* key, const std::string& what) {
    problems_->push_back({Severity::warning, key, facts_.where(key), what, ""});
  }

  Facts& facts_;
  std::vector<Problem>* problems_;
};

void resolve_precision(Resolver& r, Config& c) {
  const bool is_fp32 = c.mixed_precision == "fp32";
  const bool is_fp16 = c.mixed_precision == "fp16_mixed";
  const std::string type = is_fp32 ? "fp32" : is_fp16 ? "fp16" : "bf16";
  const std::string from = "mixed_precision";
  r.derive(c.model.bf16, "model.bf16", type == "bf16", from);
  r.derive(c.model.fp16, "model.fp16", is_fp16, from);
  r.derive(c.optimizer.bf16, "optimizer.bf16", type == "bf16", from);
  r.derive(c.optimizer.fp16, "optimizer.fp16", is_fp16, from);
  r.derive(c.model.params_dtype, "model.params_dtype", type, from);
  r.derive(c.optimizer.params_dtype, "optimizer.params_dtype", type, from);
  r.suggest(c.model.pipeline_dtype, "model.pipeline_dtype", type, from);
  r.suggest(c.ddp.grad_reduce_in_fp32, "ddp.grad_reduce_in_fp32", true, from);
}

void resolve_overlap(Resolver& r, Config& c) {
  if (c.comm_overlap.overlap_grad_reduce) {
    r.derive(c.ddp.overlap_grad_reduce, "ddp.overlap_grad_reduce",
             *c.comm_overlap.overlap_grad_reduce, "comm_overlap.overlap_grad_reduce");
  }
  if (c.comm_overlap.overlap_param_gather) {
    r.derive(c.ddp.overlap_param_gather, "ddp.overlap_param_gather",
             *c.comm_overlap.overlap_param_gather, "comm_overlap.overlap_param_gather");
    r.derive(c.optimizer.overlap_param_gather, "optimizer.overlap_param_gather",
             *c.comm_overlap.overlap_param_gather, "comm_overlap.overlap_param_gather");
  }
  if (c.comm_overlap.bucket_size) {
    r.derive(c.ddp.bucket_size, "ddp.bucket_size", *c.comm_overlap.bucket_size,
             "comm_overlap.bucket_size");
  }
  r.twins(c.ddp.use_distributed_optimizer, "ddp.use_distributed_optimizer",
          c.optimizer.use_distributed_optimizer, "optimizer.use_distributed_optimizer");
  r.twins(c.ddp.overlap_param_gather, "ddp.overlap_param_gather", c.optimizer.overlap_param_gather,
          "optimizer.overlap_param_gather");
}

void resolve_vocabulary(Resolver& r, Config& c) {
  Tokenizer& t = c.tokenizer;
  if (t.tokenizer_type == "ByteTokenizer") {
    r.derive(t.vocab_size, "tokenizer.vocab_size", std::int64_t{257}, "tokenizer.tokenizer_type");
  } else if (c.model.vocab_size && !t.use_tokenizer_vocab_size) {
    r.fill(t.vocab_size, "tokenizer.vocab_size", *c.model.vocab_size, "model.vocab_size");
  }
  if (!t.vocab_size) return;
  if (t.use_tokenizer_vocab_size || !c.model.vocab_size) {
    r.derive(c.model.vocab_size, "model.vocab_size", *t.vocab_size, "tokenizer.vocab_size");
    r.suggest(c.model.should_pad_vocab, "model.should_pad_vocab", true, "tokenizer.vocab_size");
  }
  r.fill(t.null_tokenizer_eod_id, "tokenizer.null_tokenizer_eod_id", *t.vocab_size - 1,
         "tokenizer.vocab_size");
}

void resolve_model(Resolver& r, Config& c) {
  Model& m = c.model;
  if (m.hidden_size > 0) {
    r.fill(m.ffn_hidden_size, "model.ffn_hidden_size", 4 * m.hidden_size, "model.hidden_size");
  }
  if (m.hidden_size > 0 && m.num_attention_heads > 0) {
    if (!m.multi_latent_attention && m.hidden_size % m.num_attention_heads == 0) {
      r.fill(m.kv_channels, "model.kv_channels", m.hidden_size / m.num_attention_heads,
             "model.hidden_size");
    }
    r.fill(m.num_query_groups, "model.num_query_groups", m.num_attention_heads,
           "model.num_attention_heads");
  }
  if (m.num_moe_experts && m.ffn_hidden_size) {
    r.fill(m.moe_ffn_hidden_size, "model.moe_ffn_hidden_size", *m.ffn_hidden_size,
           "model.ffn_hidden_size");
  }
  r.fill(m.embedding_init_method_std, "model.embedding_init_method_std", m.init_method_std,
         "model.init_method_std");
  r.fill(m.expert_tensor_parallel_size, "model.expert_tensor_parallel_size",
         m.tensor_model_parallel_size, "model.tensor_model_parallel_size");
  if (m.virtual_pipeline_model_parallel_size) {
    r.fill(m.microbatch_group_size_per_vp_stage, "model.microbatch_group_size_per_vp_stage",
           m.pipeline_model_parallel_size, "model.pipeline_model_parallel_size");
  }
  if (m.recompute_granularity == "selective") {
    r.fill(m.recompute_modules, "model.recompute_modules", TextList{"core_attn"},
           "model.recompute_granularity");
  }
  // One length, two names; both set and unequal is a rule's business.
  if (c.dataset.seq_length) {
    r.suggest(m.seq_length, "model.seq_length", *c.dataset.seq_length, "dataset.seq_length");
  }
  r.fill(c.dataset.seq_length, "dataset.seq_length", m.seq_length, "model.seq_length");
}

void resolve_batch(Resolver& r, Config& c, std::int64_t world) {
  const Model& m = c.model;
  const std::int64_t model_ranks =
      m.tensor_model_parallel_size * m.pipeline_model_parallel_size * m.context_parallel_size;
  const std::int64_t data =
      std::max<std::int64_t>(1, world / std::max<std::int64_t>(1, model_ranks));
  r.fill(c.dist.world_size, "dist.world_size", world, "the parallel sizes");
  Train& t = c.train;
  r.fill(t.micro_batch_size, "train.micro_batch_size", std::int64_t{1}, "its default");
  r.fill(t.global_batch_size, "train.global_batch_size", *t.micro_batch_size * data,
         "train.micro_batch_size");
  if (t.train_samples && !t.train_iters) {
    r.fill(t.train_iters, "train.train_iters", *t.train_samples / *t.global_batch_size,
           "train.train_samples");
  }
  Validation& v = c.validation;
  r.fill(v.eval_iters, "validation.eval_iters", std::int64_t{100}, "its default");
  r.fill(v.eval_micro_batch_size, "validation.eval_micro_batch_size", *t.micro_batch_size,
         "train.micro_batch_size");
  r.fill(v.eval_global_batch_size, "validation.eval_global_batch_size", *t.global_batch_size,
         "train.global_batch_size");
  r.fill(c.ddp.bucket_size, "ddp.bucket_size", std::max<std::int64_t>(40000000, 1000000 * data),
         "the data parallel size");
}

// What `auto` offload needs, and the cheaper way to copy: the numbers are the same either way.
void resolve_offload(Resolver& r, Config& c) {
  if (!c.optimizer.optimizer_offload_fraction.automatic) return;
  const char* from = "optimizer.optimizer_offload_fraction";
  r.suggest(c.optimizer.optimizer_cpu_offload, "optimizer.optimizer_cpu_offload", true, from);
  if (!c.optimizer.optimizer_cpu_offload) return;
  r.suggest(c.optimizer.overlap_cpu_optimizer_d2h_h2d, "optimizer.overlap_cpu_optimizer_d2h_h2d",
            true, from);
}

void resolve_schedule(Resolver& r, Config& c) {
  Scheduler& s = c.scheduler;
  Optimizer& o = c.optimizer;
  r.fill(o.min_lr, "optimizer.min_lr", 0.0, "its default");
  r.fill(s.start_weight_decay, "scheduler.start_weight_decay", o.weight_decay,
         "optimizer.weight_decay");
  r.fill(s.end_weight_decay, "scheduler.end_weight_decay", o.weight_decay,
         "optimizer.weight_decay");
  if (c.train.train_iters && !s.max_steps) {
    r.fill(s.max_steps, "scheduler.max_steps", std::max<std::int64_t>(1, *c.train.train_iters),
           "train.train_iters");
  }
  if (!s.max_steps) return;
  if (!s.lr_decay_iters && !s.lr_decay_samples) {
    if (c.train.train_samples) {
      r.fill(s.lr_decay_samples, "scheduler.lr_decay_samples", *c.train.train_samples,
             "train.train_samples");
    } else {
      r.fill(s.lr_decay_iters, "scheduler.lr_decay_iters", *s.max_steps, "scheduler.max_steps");
    }
  }
  const auto clamp = [&r](std::int64_t& warmup, const char* key, std::int64_t decay,
                          const char* decay_key) {
    if (warmup < decay || warmup == 0) return;
    r.warn(key, fmt::format("a warm-up of {} leaves nothing of a decay of {} ({}); it is cut to {}",
                            warmup, decay, decay_key, decay - 1));
    warmup = decay - 1;
    r.note(key, decay_key);
  };
  if (s.lr_decay_iters) {
    clamp(s.lr_warmup_iters, "scheduler.lr_warmup_iters", *s.lr_decay_iters,
          "scheduler.lr_decay_iters");
  }
  if (s.lr_decay_samples) {
    clamp(s.lr_warmup_samples, "scheduler.lr_warmup_samples", *s.lr_decay_samples,
          "scheduler.lr_decay_samples");
  }
}

void resolve_names(Resolver& r, Config& c, const std::string& recipe_name) {
  Logger& l = c.logger;
  r.fill(l.run_name, "logger.run_name", recipe_name, "the recipe's name");
  std::error_code error;
  const std::string folder =
      (std::filesystem::current_path(error) / "runs" / *l.run_name).lexically_normal().string();
  r.fill(l.run_dir, "logger.run_dir", folder, "logger.run_name");
}

// `dataset.data_path` in its two spellings becomes a blend.
void resolve_data(Resolver& r, Config& c) {
  Dataset& d = c.dataset;
  if (!d.data_path || d.blend || d.blend_per_split) return;
  Blend blend;
  std::vector<double> weights;
  for (const std::string& part : *d.data_path) {
    const Node value = plain_scalar(part);
    if (value.kind == Kind::integer || value.kind == Kind::real) {
      weights.push_back(value.kind == Kind::real ? value.real : static_cast<double>(value.integer));
    } else {
      blend.prefixes.push_back(part);
    }
  }
  if (blend.prefixes.empty()) return;  // a rule says so
  if (!weights.empty()) blend.weights = weights;
  r.fill(d.blend, "dataset.blend", blend, "dataset.data_path");
}

}  // namespace

std::string Facts::where(const std::string& key) const {
  const auto found = origins.find(key);
  return found == origins.end() ? "" : place_of(found->second);
}

void resolve(Facts& facts, const std::string& recipe_name, std::vector<Problem>* problems) {
  Resolver r(facts, problems);
  Config& c = facts.config;
  resolve_precision(r, c);
  resolve_overlap(r, c);
  resolve_vocabulary(r, c);
  resolve_model(r, c);
  resolve_batch(r, c, facts.world);
  resolve_offload(r, c);
  resolve_schedule(r, c);
  resolve_data(r, c);
  resolve_names(r, c, recipe_name);
}

}  // namespace rr::recipe
