// The optimizer of one rank: initial values, the step, the weights handed back layer by layer.
#include <algorithm>

#include "base/log.h"
#include "base/random.h"
#include "optim/buckets.h"
#include "optim/engine.h"
#include "optim/norms.h"
#include "optim/shard.h"

namespace rr::optim {

using device::Stream;

namespace {

class ShardedOptimizer final : public Optimizer {
 public:
  explicit ShardedOptimizer(const Environment& environment)
      : plan_(environment.plan),
        rank_(environment.rank),
        device_(environment.device),
        threads_(environment.threads),
        memory_(environment.device, environment.plan, environment.rank),
        ranges_(shard_ranges(memory_, environment.plan, environment.rank)),
        buckets_(environment, memory_),
        host_(environment, ranges_),
        norms_(environment, memory_, buckets_, ranges_) {
    check_shard();
  }

  ~ShardedOptimizer() override {
    try {
      device_.synchronize_all();  // nothing pending may touch what is released next
    } catch (const std::exception& error) {
      log_error(std::string("optimizer: pending work failed: ") + error.what());
    }
  }

  Span weights(int buffer) const override { return memory_.weights(buffer); }
  Span gradients(int buffer) const override { return memory_.gradients(buffer); }

  void initialize() override;
  void import(const Fill& fill) override;
  void begin() override { buckets_.begin(); }
  void gradients_ready(int layer) override;
  StepResult step(const StepInput& input) override;
  void wait_for(int layer) override { buckets_.wait_for(layer); }
  void finish() override;
  std::vector<StatePiece> state() override;

 private:
  void check_shard() const;
  void reduced(const std::vector<int>& buckets);
  void update(const StepArguments& arguments);
  void set(const Range& range, const Piece& piece, const std::vector<float>& values);

  const plan::Plan& plan_;
  const plan::RankPlan& rank_;
  device::Device& device_;
  ThreadPool& threads_;
  Memory memory_;
  std::vector<Range> ranges_;
  Buckets buckets_;
  HostEngine host_;
  Norms norms_;
};

// The Plan's idea of this rank's shard and the groups' must be the same.
void ShardedOptimizer::check_shard() const {
  std::int64_t owned = 0, placed = 0;
  for (const BucketView& bucket : buckets_.list()) {
    const plan::Slice part =
        plan_.optimizer.sharded ? bucket.own : plan::Slice{bucket.bucket.begin, bucket.bucket.end};
    owned += part.end - part.begin;
    for (const Range& range : ranges_) {
      if (range.place.buffer != bucket.buffer || range.place.bucket != bucket.index) continue;
      RR_CHECK(range.place.begin >= part.begin && range.place.end <= part.end,
               "a shard range lies in this rank's slice of its bucket");
      placed += range.size();
    }
  }
  RR_CHECK(owned == placed, "the shard covers this rank's slices");
}

void ShardedOptimizer::initialize() {
  const Fill draw = [this](const plan::Parameter& parameter, std::int64_t first, std::int64_t count,
                           float* out) {
    switch (parameter.init) {
      case plan::Init::ones:
        std::fill(out, out + count, 1.0F);
        return;
      case plan::Init::zeros:
        std::fill(out, out + count, 0.0F);
        return;
      case plan::Init::normal:
        break;
    }
    const RandomStream stream(plan_.model.seed, parameter.init_name);
    threads_.for_ranges(count, 4096, [&](std::int64_t begin, std::int64_t end) {
      stream.normal(static_cast<std::uint64_t>(first + begin), end - begin,
                    static_cast<float>(parameter.std), out + begin);
    });
  };
  import(draw);
}

void ShardedOptimizer::import(const Fill& fill) {
  std::vector<float> values;
  for (const Range& range : ranges_) {
    for (const Piece& piece : range.pieces) {
      values.resize(static_cast<std::size_t>(piece.end - piece.begin));
      fill(*piece.parameter, piece.first, piece.end - piece.begin, values.data());
      set(range, piece, values);
    }
  }
  for (std::size_t i = 0; i < buckets_.list().size(); ++i) {
    buckets_.gather_weights(static_cast<int>(i), device_.record(Stream::h2d));
  }
  finish();
}

// `values` become the master of `piece`, rounded its weight.
void ShardedOptimizer::set(const Range& range, const Piece& piece,
                           const std::vector<float>& values) {
  const Span source{reinterpret_cast<std::byte*>(const_cast<float*>(values.data())),
                    static_cast<std::int64_t>(values.size()) * 4, Pool::host};
  std::vector<std::uint16_t> rounded;
  Span weight = source;
  if (range.dtype == DType::bf16) {
    rounded.resize(values.size());
    threads_.for_ranges(static_cast<std::int64_t>(values.size()), 4096,
                        [&](std::int64_t begin, std::int64_t end) {
                          for (std::int64_t i = begin; i < end; ++i) {
                            rounded[static_cast<std::size_t>(i)] =
                                bf16_from_float(values[static_cast<std::size_t>(i)]);
                          }
                        });
    weight = {reinterpret_cast<std::byte*>(rounded.data()),
              static_cast<std::int64_t>(rounded.size()) * 2, Pool::host};
  }
  device_.copy(Stream::h2d, elements(range.weight, range.dtype, piece.begin, piece.end), weight);
  for (const Span& master : {range.master, range.device_master}) {
    if (!master.data || master.data == range.weight.data) continue;
    device_.copy(Stream::h2d, elements(master, DType::f32, piece.begin, piece.end), source);
  }
  device_.synchronize(device_.record(Stream::h2d));
}

void ShardedOptimizer::gradients_ready(int layer) { reduced(buckets_.ready(layer)); }

// These buckets' reductions were queued.
void ShardedOptimizer::reduced(const std::vector<int>& buckets) {
  if (!plan_.optimizer.sharded) return;  // not yet whole
  for (const int b : buckets) {
    const BucketView& bucket = buckets_.list()[static_cast<std::size_t>(b)];
    host_.gradients_reduced(bucket.buffer, bucket.index, buckets_.reduced(b));
  }
}

StepResult ShardedOptimizer::step(const StepInput& input) {
  reduced(buckets_.flush());
  StepResult result = norms_.of_gradients();
  if (!result.finite) {
    host_.wait_for_gradients();
    return result;
  }
  if (!plan_.optimizer.sharded) {
    for (const int b : buckets_.order()) {
      const BucketView& bucket = buckets_.list()[static_cast<std::size_t>(b)];
      buckets_.gather_gradients(b);
      host_.gradients_reduced(bucket.buffer, bucket.index, buckets_.reduced(b));
    }
  }
  double clip = 1.0;
  if (plan_.optimizer.clip > 0) {
    clip = std::min(1.0, plan_.optimizer.clip / (result.grad_norm + 1e-6));
  }
  update({adam_arguments(plan_.optimizer, input, clip, false),
          adam_arguments(plan_.optimizer, input, clip, true)});
  if (plan_.log.params_norm) result.params_norm = norms_.of_masters();
  host_.report(result);
  return result;
}

// Every range in forward order, each bucket's weights sent on as soon as they are written.
void ShardedOptimizer::update(const StepArguments& arguments) {
  host_.wait_for_weights();
  for (std::size_t b = 0; b < buckets_.list().size(); ++b) {
    const BucketView& bucket = buckets_.list()[b];
    device_.wait(Stream::compute, buckets_.reduced(static_cast<int>(b)));
    device::Event written;
    for (std::size_t r = 0; r < ranges_.size(); ++r) {
      const plan::ShardRange& place = ranges_[r].place;
      if (place.buffer != bucket.buffer || place.bucket != bucket.index) continue;
      if (place.home == plan::Home::host) {
        written = host_.step(r, arguments);
      } else {
        adam_on(ranges_[r], 0, ranges_[r].size(), arguments, threads_);
      }
    }
    buckets_.gather_weights(static_cast<int>(b), written);
  }
}

void ShardedOptimizer::finish() {
  buckets_.wait_for_all();
  host_.wait_for_weights();
}

std::vector<StatePiece> ShardedOptimizer::state() {
  std::vector<StatePiece> pieces;
  for (const Range& range : ranges_) {
    for (const Piece& piece : range.pieces) {
      const auto add = [&](const char* ending, Span whole) {
        pieces.push_back({piece.parameter->name + ending, DType::f32, piece.first,
                          elements(whole, DType::f32, piece.begin, piece.end)});
      };
      add(".master", range.master);
      add(".exp_avg", range.exp_avg);
      add(".exp_avg_sq", range.exp_avg_sq);
    }
  }
  return pieces;
}

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const Environment& environment) {
  return std::make_unique<ShardedOptimizer>(environment);
}

}  // namespace rr::optim
