// Plan: everything that happens in a run, as values computed from (Config, Machine, world size).
//
// Who holds which layers, experts and parameter slices, where each byte of state lives, the
// schedules as explicit lists of steps, bytes per pool, the changed settings as text. No I/O, no
// clock, no torch, no MPI. Kept per pipeline stage, with formulas for one rank's slice
// (rank_plan), never as a list over ranks. After the Plan nobody reads the Config.
//
// Letters: B sequences of a micro-batch, S tokens each, T = B * S, H hidden, N heads, G query
// groups, D head width, F feed-forward width, V vocabulary, E experts, K experts per token,
// L layers.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/base.h"

namespace rr::plan {

// ---- topology -------------------------------------------------------------------------------

// Rank order tp-cp-ep-dp-pp: tp is the fastest, pp the slowest. Expert groups fold over
// tp x cp x dp of one stage: EP ranks are neighbours there, EDP ranks EP * ETP apart.
enum class Group : std::uint8_t {
  world,
  tensor,       // same weights' slices
  context,      // same sequences
  data,         // replicas of the dense parameters (includes context ranks)
  pipeline,     // the stages of one model copy, first to last
  expert,       // ranks that share one set of experts' tokens
  expert_data,  // replicas of the same experts
  embedding,    // first and last stage of a model copy, used when the embedding is tied
  model,        // every rank of one model copy (tp x pp): for global norms
};
inline constexpr int kNumGroups = 9;
const char* name_of(Group group);

struct Coordinates {
  int tensor = 0, context = 0, data = 0, pipeline = 0;
  int expert = 0, expert_data = 0, expert_tensor = 0;
};

struct Topology {
  int world = 1;
  int tensor = 1, context = 1, pipeline = 1, data = 1;  // world = product of these
  int expert = 1, expert_tensor = 1, expert_data = 1;   // world = ep * etp * edp * pp
  int chunks = 1;                                       // model chunks per stage (VPP)
  bool sequence_parallel = false;  // norms and residuals sliced over the tensor ranks

  Coordinates coordinates(int rank) const;
  // World ranks of the group that `rank` belongs to, ascending; just {rank} for a group of one.
  // `embedding` of a middle stage is {rank}. `data` runs over context ranks fastest.
  std::vector<int> members(Group group, int rank) const;
  int size(Group group) const;
};

// ---- the model ------------------------------------------------------------------------------

enum class Norm : std::uint8_t { rms, layer };
enum class Activation : std::uint8_t { gelu, silu };
enum class Position : std::uint8_t { none, rope, learned };
enum class RouterScore : std::uint8_t { softmax, sigmoid };
enum class LoadBalance : std::uint8_t { none, aux_loss, seq_aux_loss };

// Frequency scaling of Llama 3 (factor 1 = off).
struct RopeScaling {
  double factor = 1.0, low_frequency_factor = 1.0, high_frequency_factor = 4.0;
  std::int64_t original_max_positions = 8192;
};

// Latent attention of DeepSeek V2 and V3; planned only. kv_rank 0: off.
struct LatentAttention {
  std::int64_t q_rank = 0;  // 0: queries are projected directly
  std::int64_t kv_rank = 0;
  std::int64_t qk_dim = 0, rotary_dim = 0, v_dim = 0;  // of one head
};

struct ModelSpec {
  std::int64_t num_layers = 0;    // L
  std::int64_t hidden = 0;        // H
  std::int64_t heads = 0;         // N
  std::int64_t query_groups = 0;  // G
  std::int64_t head_dim = 0;      // D
  std::int64_t ffn = 0;           // F of dense layers
  std::int64_t vocab = 0;         // V, unpadded: the loss never sees more
  std::int64_t padded_vocab = 0;  // rows of the embedding and the head
  std::int64_t seq_length = 0;    // S
  bool gated = true;              // fc1 holds [gate; up]
  Activation activation = Activation::silu;
  Norm norm = Norm::rms;
  double norm_epsilon = 1e-5;
  bool qk_norm = false;
  bool qk_norm_whole = false;  // over all heads at once (OLMoE) instead of per head
  bool tied = false;
  Position position = Position::rope;
  double rotary_base = 10000.0;
  double rotary_percent = 1.0;
  RopeScaling rope_scaling;
  LatentAttention latent;
  bool attention_sinks = false;  // a learned logit per head (GPT-OSS); planned only
  bool linear_bias = false;      // bias of every linear layer (never of experts or the head)
  bool qkv_bias = false;
  // mixture of experts; experts == 0: dense everywhere
  std::int64_t experts = 0;            // E
  std::int64_t experts_per_token = 0;  // K
  std::int64_t expert_ffn = 0;
  std::int64_t shared_expert_ffn = 0;  // 0: no shared expert; else planned only
  bool expert_bias = false;            // of experts and router; planned only
  std::vector<bool> layer_is_moe;      // [L]
  RouterScore router_score = RouterScore::softmax;
  bool router_pre_softmax = false;  // softmax before top-k, no renormalisation
  double router_scaling = 1.0;
  LoadBalance load_balance = LoadBalance::none;
  double aux_loss_coefficient = 0.0;
  double z_loss_coefficient = 0.0;
  // initial values
  std::uint64_t seed = 1234;
  double init_std = 0.02;
  double output_std = 0.02;  // attention output and fc2: init_std / sqrt(2 L)
  double embedding_std = 0.02;
  DType compute = DType::f32;  // f32 or bf16: weights, activations, pipeline traffic
};

// ---- parameters and where they lie ------------------------------------------------------------

enum class Init : std::uint8_t { normal, ones, zeros };

// One tensor of a stage as this rank's model copy holds it. Matrices are [out, in]. The experts of
// one layer are one tensor, [local experts, out, in], each expert contiguous.
struct Parameter {
  std::string name;                 // Megatron's, with the global layer: "decoder.layers.3.mlp..."
  std::vector<std::int64_t> shape;  // local
  std::int64_t size = 0;            // elements
  int layer = 0;                    // 0 embedding, 1..L decoder, L+1 final norm and head
  int buffer = 0;                   // index into StagePlan::buffers
  std::int64_t offset = 0;          // elements from the buffer's start; a multiple of 64
  bool expert = false;              // first dimension is experts, sharded over EP
  bool decay = true;                // weight decay applies (two or more dimensions)
  bool duplicate = false;           // tied copy: left out of norms and counts
  int split = -1;                   // dimension sliced over the tensor ranks (experts: over the
                                    // expert-tensor ranks); -1: whole on each of them
  Init init = Init::normal;
  double std = 0.0;
  std::string init_name;  // key of the initial values: `name`, or for the tied copy the
                          // embedding's, so that both start equal
  // Elements of this tensor are elements first_element(...) and up of the full tensor when it is
  // drawn: for experts this moves with the EP rank.
};

// What one collective carries: [begin, end) of a buffer, whole layers, a multiple of 64 * group.
struct Bucket {
  std::int64_t begin = 0, end = 0;  // elements
  int first_layer = 0, last_layer = 0;
};

// Weights of one dtype and kind, contiguous, in forward order. The fp32 main gradients are a second
// array with the same element offsets.
struct FlatBuffer {
  DType dtype = DType::f32;     // of the weights
  bool expert = false;          // reduced over expert_data instead of data
  std::int64_t size = 0;        // elements, padding included
  std::vector<Bucket> buckets;  // ascending; issued from the last to the first
};

struct StagePlan {
  std::vector<int> layers;  // decoder layers, 1-based ids: 1..L, ascending; names count from 0
  std::vector<int> chunk_layers;      // how many of them each model chunk holds, in order
  bool embedding = false;             // holds the input embedding
  bool head = false;                  // holds the final norm, the head and the loss
  std::vector<Parameter> parameters;  // in forward order
  std::vector<FlatBuffer> buffers;
  std::int64_t num_parameters = 0;  // elements of one rank's tensors, without the padding
                                    // between them and without duplicates
};

enum class Home : std::uint8_t { device, host, streamed };
const char* name_of(Home home);

// A piece of one rank's optimizer shard with one home; never crosses a bucket.
struct ShardRange {
  int buffer = 0;
  int bucket = 0;
  std::int64_t begin = 0, end = 0;  // elements of the buffer, multiples of 64
  Home home = Home::device;
};

// ---- schedules --------------------------------------------------------------------------------

enum class StepKind : std::uint8_t {
  receive_forward,
  forward,
  send_forward,
  receive_backward,
  backward,
  send_backward,
};
const char* name_of(StepKind kind);

struct Step {
  StepKind kind;
  int micro_batch = 0;
  int chunk = 0;
  bool operator==(const Step&) const = default;
};

// 1F1B for `stage` of `stages` with `micro_batches`. Sends do not block. Within a stage the order
// is the execution order.
std::vector<Step> training_schedule(int stages, int stage, int micro_batches);
// Forward only.
std::vector<Step> evaluation_schedule(int stages, int stage, int micro_batches);
// Interleaved 1F1B: every stage holds `chunks` model chunks, `group` micro-batches pass a chunk in
// a row (megatron.md 8.1; group in [stages, micro_batches], the remainder 0 or at least stages).
// The output of the last stage's chunk c is the input of the first stage's chunk c + 1.
std::vector<Step> interleaved_schedule(int stages, int stage, int chunks, int micro_batches,
                                       int group);

// ---- the rest of a run ------------------------------------------------------------------------

struct BatchPlan {
  std::int64_t micro_batch = 1;   // B, sequences
  std::int64_t global_batch = 1;  // sequences per step over all ranks
  int num_micro_batches = 1;      // per rank and step
  int micro_batch_group = 0;      // of the interleaved schedule; 0: as many as stages
  std::int64_t train_iters = 0;
  std::int64_t exit_interval = 0;  // stop after an iteration that this divides; 0: never
  double exit_after_minutes = 0;   // stop after the iteration that passes this; 0: never
  std::int64_t eval_interval = 0;  // 0: never
  std::int64_t eval_iters = 0;
  std::int64_t eval_global_batch = 1, eval_micro_batch = 1;
  int eval_num_micro_batches = 1;
};

struct OptimizerPlan {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double clip = 1.0;    // 0: off
  bool sharded = true;  // ZeRO-1; otherwise every replica steps everything
  bool cpu_offload = false;
  double fraction = 0.0;        // of this rank's shard that leaves the device
  bool offload_masters = true;  // ours; false: the reference's layout, masters stay on the device
  enum class Placement : std::uint8_t {
    latest_first,  // exactly the fraction, latest layer first, dense and expert together
    megatron,      // the reference's rule: whole tensors, apart for dense and expert
  } placement = Placement::latest_first;
  bool overlap = false;  // copies overlap the host's Adam
  // Types of the main gradients and of the moments; others than f32 are planned only.
  DType gradients = DType::f32, exp_avg = DType::f32, exp_avg_sq = DType::f32;
};

enum class Decay : std::uint8_t { constant, linear, cosine, inverse_square_root, wsd };
enum class WsdDecay : std::uint8_t { linear, cosine, exponential, minus_sqrt };

// All in samples (iterations * global batch), as the reference counts.
struct SchedulePlan {
  double max_lr = 0, min_lr = 0, warmup_init = 0;
  Decay style = Decay::linear;
  WsdDecay wsd_style = WsdDecay::exponential;
  std::int64_t warmup = 0, decay = 0, wsd_decay = 0;
  double start_weight_decay = 0, end_weight_decay = 0;
  enum class Ramp : std::uint8_t { constant, linear, cosine } weight_decay_ramp = Ramp::constant;
  std::int64_t weight_decay_steps = 0;
};

struct RecomputePlan {
  bool full = false;        // only the inputs of layers are kept (plan only)
  std::int64_t layers = 0;  // of a stage, from the first; the others keep everything
};

struct ActivationOffloadPlan {
  bool enabled = false;
  std::int64_t layers = 0;        // the first n decoder layers of a chunk
  std::int64_t min_elements = 0;  // smaller tensors stay
  bool retain_buffers = false;    // keep host slabs between micro-batches
};

struct DataPlan {
  bool mock = true;
  std::vector<std::string> prefixes;                       // .bin/.idx without the ending
  std::vector<double> weights;                             // empty: by size; else one per prefix
  std::array<std::vector<std::string>, 3> split_prefixes;  // blend_per_split; else empty
  std::array<std::vector<double>, 3> split_weights;
  std::array<double, 3> split = {1, 0, 0};          // normalised
  std::array<std::int64_t, 3> samples = {0, 0, 0};  // asked for train, valid, test
  std::int64_t seq_length = 0;
  std::uint64_t seed = 1234;
  std::string cache_path;  // empty: no cache
  double surplus = 0.005;
  bool reset_position_ids = false, reset_attention_mask = false, eod_mask_loss = false;
  bool drop_last_partial_validation = true, add_extra_token = true;
  std::int64_t vocab = 0;             // ids must be below
  std::int64_t end_of_document = -1;  // -1: none
};

struct LogPlan {
  std::string run_name;
  std::string run_dir;
  std::int64_t interval = 1;
  bool throughput = false;
  bool params_norm = false;
  bool num_zeros = false;
  std::string tensorboard_dir;  // empty: off
};

// ---- memory -------------------------------------------------------------------------------------

struct MemoryItem {
  Pool pool = Pool::device;
  std::string what;  // "weights", "main gradients", "master weights", "moments", ...
  std::int64_t bytes = 0;
  bool exact = true;  // planned = allocated to the byte; otherwise an estimate (activations)
};

// ---- the whole ----------------------------------------------------------------------------------

struct Plan {
  Topology topology;
  ModelSpec model;
  std::vector<StagePlan> stages;  // [pp]
  BatchPlan batch;
  OptimizerPlan optimizer;
  SchedulePlan schedule;
  ActivationOffloadPlan activations;
  RecomputePlan recompute;
  DataPlan data;
  LogPlan log;
  std::int64_t total_parameters = 0;   // of the model, each once, unpadded vocabulary
  std::int64_t active_parameters = 0;  // per token
  double flops_per_token = 0;          // forward and backward; megatron.md 5.5
  std::string config_yaml;             // resolved, for run_config.yaml
  std::string changes;                 // settings that differ from their defaults, one a line
  std::string launch;                  // the command that starts it
  std::string prediction;  // fit and step time on the machine; empty where its file has no figures
};

// What one rank needs beside the Plan: its place, its layer set and its shard.
struct RankPlan {
  int rank = 0;
  Coordinates at;
  int stage = 0;
  std::int64_t first_expert = 0, num_local_experts = 0;
  std::vector<ShardRange> shard;  // in issue order of buckets reversed: forward order
  std::vector<Step> training, evaluation;
  std::vector<MemoryItem> memory;
  std::int64_t shard_elements = 0, offloaded_elements = 0;

  std::int64_t bytes(Pool pool) const;  // sum of memory items of a pool
};

RankPlan rank_plan(const Plan& plan, int rank);
// The training steps of a stage: plain or interleaved, as the plan says.
std::vector<Step> stage_schedule(const Plan& plan, int stage);

// The slice of `bucket` that group member `index` of `size` owns: [begin, end) in buffer elements.
struct Slice {
  std::int64_t begin = 0, end = 0;
};
Slice shard_of(const Bucket& bucket, int index, int size);

// The element of the full (all experts) tensor `parameter.name` that local element 0 is.
std::int64_t first_element(const Parameter& parameter, const RankPlan& rank);

// ---- where optimizer state lies -----------------------------------------------------------------

// The allocations beside weights and main gradients that hold the state of one rank's shard. One
// slab is one allocation; the planned bytes are these, so an optimizer that allocates them is to
// the byte what was planned.
enum class Slab : std::uint8_t {
  device_master,      // f32; none where the f32 weight is its own master
  device_exp_avg,     // f32
  device_exp_avg_sq,  // f32
  host_master,        // f32; with f32 weights this is what is copied out after the host's step
  host_exp_avg,       // f32
  host_exp_avg_sq,    // f32
  host_gradient,      // f32, staged from the device
  host_weight,        // staged to the device when the weights are not f32
};
inline constexpr int kNumSlabs = 8;
const char* name_of(Slab slab);
Pool pool_of(Slab slab);

struct StateLayout {
  std::array<std::int64_t, kNumSlabs> bytes{};  // 0: the slab does not exist
  // Parallel to RankPlan::shard: byte offset of the range in each slab, -1: not there. Multiples
  // of 128 (two-byte elements) or 256.
  std::vector<std::array<std::int64_t, kNumSlabs>> offsets;

  std::int64_t size(Slab slab) const { return bytes[static_cast<std::size_t>(slab)]; }
  std::int64_t offset(std::size_t range, Slab slab) const {
    return offsets[range][static_cast<std::size_t>(slab)];
  }
};
StateLayout state_layout(const Plan& plan, const RankPlan& rank);

// ---- building a Plan by hand ------------------------------------------------------------------

// Fills plan.stages and the totals from plan.topology and plan.model: what make_plan does, and what
// tests do that build a Plan without a recipe. `bucket_elements`: ddp.bucket_size, 0 for the
// reference's default. `layers_per_part`: decoder layers of part k = chunk k / PP of stage k % PP;
// empty for equal parts.
void lay_out(Plan& plan, std::int64_t bucket_elements = 0,
             const std::vector<int>& layers_per_part = {});
// max(40 million, 1 million per data-parallel rank).
std::int64_t default_bucket_elements(const Topology& topology);

}  // namespace rr::plan
