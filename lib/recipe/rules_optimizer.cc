// Rules about the optimizer's own settings, checkpoints and adapters (reference 2.3, 2.8).
#include <fmt/format.h>

#include "recipe/rules.h"

namespace rr::recipe {
namespace {

Verdict rate_set(const Facts& f) {
  if (f.config.optimizer.lr) return {};
  return Finding{"optimizer.lr is not set", "Set optimizer.lr, for instance 3e-4."};
}

Verdict rate_order(const Facts& f) {
  const Optimizer& o = f.config.optimizer;
  if (!o.lr || !o.min_lr || *o.min_lr <= *o.lr) return {};
  return Finding{fmt::format("optimizer.min_lr={} is above optimizer.lr={}", *o.min_lr, *o.lr),
                 fmt::format("Use at most {}.", *o.lr)};
}

Verdict warmup_start(const Facts& f) {
  const Optimizer& o = f.config.optimizer;
  const Scheduler& s = f.config.scheduler;
  if (!o.lr || s.lr_warmup_init <= *o.lr) return {};
  return Finding{
      fmt::format("scheduler.lr_warmup_init={} is above optimizer.lr={}", s.lr_warmup_init, *o.lr),
      "A warm-up rises."};
}

Verdict state_types(const Facts& f) {
  const Optimizer& o = f.config.optimizer;
  if (o.use_precision_aware_optimizer) return {};
  for (const auto& [type, name] : {std::pair{o.main_grads_dtype, "main_grads_dtype"},
                                   std::pair{o.main_params_dtype, "main_params_dtype"},
                                   std::pair{o.exp_avg_dtype, "exp_avg_dtype"},
                                   std::pair{o.exp_avg_sq_dtype, "exp_avg_sq_dtype"}}) {
    if (type != "fp32") {
      return Finding{fmt::format("{} can only be fp32 when not using precision-aware optimizer: it "
                                 "is {}",
                                 name, type),
                     fmt::format("Use optimizer.{}=fp32.", name)};
    }
  }
  return {};
}

Verdict precision_aware(const Facts& f) {
  const Optimizer& o = f.config.optimizer;
  if (!o.use_precision_aware_optimizer) return {};
  if (o.optimizer != "adam") {
    return Finding{fmt::format("--use-precision-aware-optimizer only supported with adam: "
                               "optimizer.optimizer={}",
                               o.optimizer),
                   "Use optimizer.optimizer=adam."};
  }
  if (!o.use_distributed_optimizer) {
    return Finding{"--use-precision-aware-optimizer only supported with distributed optimizer",
                   "Use optimizer.use_distributed_optimizer=true."};
  }
  return {};
}

Verdict gather_needs_shards(const Facts& f) {
  const Optimizer& o = f.config.optimizer;
  if (!o.overlap_param_gather || o.use_distributed_optimizer) return {};
  return Finding{
      "overlap_param_gather only supported with distributed optimizer: "
      "optimizer.use_distributed_optimizer=false",
      "Use optimizer.use_distributed_optimizer=true."};
}

Verdict gather_needs_reduce(const Facts& f) {
  const Ddp& d = f.config.ddp;
  if (!d.overlap_param_gather || d.overlap_grad_reduce) return {};
  return Finding{
      "Must use overlap_param_gather with overlap_grad_reduce: "
      "ddp.overlap_grad_reduce=false",
      "Use ddp.overlap_grad_reduce=true."};
}

Verdict chunked_state(const Facts& f) {
  const Optimizer& o = f.config.optimizer;
  if (!o.chunked_optimizer_state_offload && !o.offload_optimizer_states) return {};
  if (o.optimizer != "adam" && o.optimizer != "muon") {
    return Finding{fmt::format("chunked_optimizer_state_offload works with adam and muon only, not "
                               "with optimizer.optimizer={}",
                               o.optimizer),
                   ""};
  }
  if (o.optimizer == "adam" && !o.use_distributed_optimizer) {
    return Finding{"chunked_optimizer_state_offload with adam needs the distributed optimizer",
                   "Use optimizer.use_distributed_optimizer=true."};
  }
  if (o.optimizer_cuda_graph || f.config.model.cuda_graph_impl == "full_iteration") {
    return Finding{"chunked_optimizer_state_offload excludes a CUDA graph of the optimizer step",
                   ""};
  }
  if (f.config.ddp.use_megatron_fsdp || f.config.dist.use_megatron_fsdp) {
    return Finding{"chunked_optimizer_state_offload excludes Megatron FSDP",
                   "Use ddp.use_megatron_fsdp=false."};
  }
  const auto moment = [](const std::string& type) { return type == "fp32" || type == "bf16"; };
  if (o.use_precision_aware_optimizer &&
      (o.main_params_dtype != "fp32" || !moment(o.exp_avg_dtype) || !moment(o.exp_avg_sq_dtype))) {
    return Finding{
        fmt::format("chunked_optimizer_state_offload needs fp32 masters and fp32 or bf16 "
                    "moments: they are {}, {} and {}",
                    o.main_params_dtype, o.exp_avg_dtype, o.exp_avg_sq_dtype),
        ""};
  }
  if (f.config.checkpoint.async_save) {
    return Finding{"chunked_optimizer_state_offload and checkpoint.async_save exclude each other",
                   "Use checkpoint.async_save=false."};
  }
  return {};
}

Verdict async_format(const Facts& f) {
  const Checkpoint& c = f.config.checkpoint;
  if (!c.async_save || c.ckpt_format == "torch_dist" || c.ckpt_format == "fsdp_dtensor") return {};
  return Finding{fmt::format("async_save is only supported with ckpt_format=torch_dist or "
                             "fsdp_dtensor: it is {}",
                             c.ckpt_format),
                 "Use checkpoint.ckpt_format=torch_dist."};
}

Verdict save_interval_unused(const Facts& f) {
  const Checkpoint& c = f.config.checkpoint;
  if (c.save || !c.save_interval) return {};
  return Finding{fmt::format("checkpoint.save_interval={} does nothing while checkpoint.save=null",
                             *c.save_interval),
                 ""};
}

Verdict adapters_need_weights(const Facts& f) {
  if (!f.config.peft.scheme || f.config.checkpoint.pretrained_checkpoint) return {};
  return Finding{"PEFT requires checkpoint.pretrained_checkpoint to be set",
                 "Set checkpoint.pretrained_checkpoint."};
}

Verdict fsdp_format(const Facts& f) {
  const bool fsdp = f.config.ddp.use_megatron_fsdp || f.config.dist.use_megatron_fsdp;
  if (!fsdp || f.config.checkpoint.ckpt_format == "fsdp_dtensor") return {};
  return Finding{"Megatron FSDP only supports fsdp_dtensor checkpoint format",
                 "Use checkpoint.ckpt_format=fsdp_dtensor."};
}

Verdict eval_settings(const Facts& f) {
  const Validation& v = f.config.validation;
  const auto iters = f.config.train.train_iters;
  if (!v.eval_interval || !iters || *v.eval_interval <= *iters || v.eval_iters == 0) return {};
  return Finding{fmt::format("validation.eval_interval={} is beyond train.train_iters={}: there is "
                             "no evaluation",
                             *v.eval_interval, *iters),
                 ""};
}

// Switching the overlap on asks for what is done anyway; off is not to be had.
Verdict overlap_off(const Facts& f) {
  for (const char* key :
       {"ddp.overlap_grad_reduce", "ddp.overlap_param_gather", "optimizer.overlap_param_gather",
        "comm_overlap.overlap_grad_reduce", "comm_overlap.overlap_param_gather"}) {
    if (!f.is_set(key) || f.value(key) != "false") continue;
    return Finding{fmt::format("{} has no effect here: gradients are always reduced under backward "
                               "and weights gathered under forward, with the same numbers",
                               f.show(key)),
                   ""};
  }
  return {};
}

// A gradient or loss that is not finite always stops the run; off is not to be had either.
Verdict nan_check_off(const Facts& f) {
  for (const char* key :
       {"ddp.check_for_nan_in_grad", "rerun_state_machine.check_for_nan_in_loss"}) {
    if (!f.is_set(key) || f.value(key) != "false") continue;
    return Finding{fmt::format("{} has no effect here: a gradient that is not finite always stops "
                               "the run",
                               f.show(key)),
                   ""};
  }
  return {};
}

}  // namespace

const std::vector<Rule>& optimizer_rules() {
  static constexpr auto kError = Severity::error;
  static constexpr auto kWarning = Severity::warning;
  static constexpr const char* kAware = "optimizer.use_precision_aware_optimizer";
  static constexpr const char* kSharded = "optimizer.use_distributed_optimizer";
  static const std::vector<Rule> rules = {
      {kError, {"optimizer.lr"}, "the learning rate is set", rate_set},
      {kError,
       {"optimizer.min_lr", "optimizer.lr"},
       "the lowest rate is not above the highest",
       rate_order},
      {kError,
       {"scheduler.lr_warmup_init", "optimizer.lr"},
       "the warm-up starts below the highest "
       "rate",
       warmup_start},
      {kError,
       {"optimizer.main_grads_dtype", "optimizer.main_params_dtype", "optimizer.exp_avg_dtype",
        "optimizer.exp_avg_sq_dtype", kAware},
       "state types other than fp32 need the precision-aware optimizer",
       state_types},
      {kError,
       {kAware, "optimizer.optimizer", kSharded},
       "the precision-aware optimizer needs adam and the distributed optimizer",
       precision_aware},
      {kError,
       {"optimizer.overlap_param_gather", "ddp.overlap_param_gather", kSharded},
       "overlapped gathering needs the distributed optimizer",
       gather_needs_shards},
      {kError,
       {"ddp.overlap_param_gather", "ddp.overlap_grad_reduce"},
       "overlapped gathering needs overlapped reduction",
       gather_needs_reduce},
      {kError,
       {"optimizer.chunked_optimizer_state_offload", "optimizer.offload_optimizer_states",
        "optimizer.optimizer", kSharded, "optimizer.optimizer_cuda_graph", "checkpoint.async_save"},
       "chunked state offload has what it needs",
       chunked_state},
      {kError,
       {"checkpoint.async_save", "checkpoint.ckpt_format"},
       "asynchronous saving has a format for it",
       async_format},
      {kError,
       {"peft.scheme", "checkpoint.pretrained_checkpoint"},
       "adapters need weights to start from",
       adapters_need_weights},
      {kError,
       {"ddp.use_megatron_fsdp", "dist.use_megatron_fsdp", "checkpoint.ckpt_format"},
       "FSDP has its own checkpoint format",
       fsdp_format},
      {kWarning,
       {"checkpoint.save_interval", "checkpoint.save"},
       "a save interval needs a folder to save to",
       save_interval_unused},
      {kWarning,
       {"ddp.overlap_grad_reduce", "ddp.overlap_param_gather", "optimizer.overlap_param_gather",
        "comm_overlap.overlap_grad_reduce", "comm_overlap.overlap_param_gather"},
       "data-parallel traffic always overlaps",
       overlap_off},
      {kWarning,
       {"ddp.check_for_nan_in_grad", "rerun_state_machine.check_for_nan_in_loss"},
       "what is not finite always stops the run",
       nan_check_off},
      {kWarning,
       {"validation.eval_interval", "train.train_iters"},
       "the evaluation interval is within the run",
       eval_settings},
  };
  return rules;
}

}  // namespace rr::recipe
