// AdamW over shard ranges, and the copies around it for those that live on the host.
#include "optim/engine.h"

#include <algorithm>

namespace rr::optim {

using device::Stream;

void adam_on(const Range& range, std::int64_t begin, std::int64_t end,
             const StepArguments& arguments, ThreadPool& threads) {
  constexpr std::int64_t kGrain = 16384;  // 450 KB of state: well above the cost of a hand-over
  const bool host = range.place.home == plan::Home::host;
  const float* gradient = (host ? range.staged_gradient : range.gradient).as<float>();
  const Span weight = host ? range.staged_weight : range.weight;
  threads.for_ranges(end - begin, kGrain, [&](std::int64_t from, std::int64_t to) {
    for (const Run& run : range.runs) {
      const std::int64_t first = std::max(begin + from, run.begin);
      const std::int64_t last = std::min(begin + to, run.end);
      if (first >= last) continue;
      adam_step(arguments[run.decay], last - first, range.master.as<float>() + first,
                range.exp_avg.as<float>() + first, range.exp_avg_sq.as<float>() + first,
                gradient + first, elements(weight, range.dtype, first, last).data, range.dtype);
    }
  });
}

void StreamClock::start() {
  device_.run(stream_, [this] { started_ = Clock::now(); });
}

void StreamClock::stop() {
  device_.run(stream_, [this] {
    nanoseconds_ +=
        std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - started_).count();
  });
}

HostEngine::HostEngine(const Environment& environment, const std::vector<Range>& ranges)
    : device_(environment.device),
      threads_(environment.threads),
      ranges_(ranges),
      overlap_(environment.plan.optimizer.overlap),
      d2h_(environment.device, Stream::d2h),
      h2d_(environment.device, Stream::h2d) {
  const std::int64_t length = environment.chunk_elements;
  RR_CHECK(length > 0, "a chunk has elements");
  for (std::size_t r = 0; r < ranges_.size(); ++r) {
    if (ranges_[r].place.home != plan::Home::host) continue;
    for (std::int64_t begin = 0; begin < ranges_[r].size(); begin += length) {
      chunks_.push_back({r, begin, std::min(begin + length, ranges_[r].size()), {}});
    }
  }
}

void HostEngine::copy_gradients(Chunk& chunk) {
  const Range& range = ranges_[chunk.range];
  d2h_.start();
  device_.copy(Stream::d2h, elements(range.staged_gradient, DType::f32, chunk.begin, chunk.end),
               elements(range.gradient, DType::f32, chunk.begin, chunk.end));
  d2h_.stop();
  chunk.arrived = device_.record(Stream::d2h);
}

void HostEngine::copy_weights(const Chunk& chunk) {
  const Range& range = ranges_[chunk.range];
  h2d_.start();
  device_.copy(Stream::h2d, elements(range.weight, range.dtype, chunk.begin, chunk.end),
               elements(range.staged_weight, range.dtype, chunk.begin, chunk.end));
  if (range.device_master.data) {
    device_.copy(Stream::h2d, elements(range.device_master, DType::f32, chunk.begin, chunk.end),
                 elements(range.master, DType::f32, chunk.begin, chunk.end));
  }
  h2d_.stop();
  left_ = device_.record(Stream::h2d);
}

void HostEngine::gradients_reduced(int buffer, int bucket, const device::Event& reduced) {
  if (!overlap_) return;
  bool first = true;
  for (Chunk& chunk : chunks_) {
    const plan::ShardRange& place = ranges_[chunk.range].place;
    if (place.buffer != buffer || place.bucket != bucket) continue;
    if (first) device_.wait(Stream::d2h, reduced);
    first = false;
    copy_gradients(chunk);
  }
}

device::Event HostEngine::step(std::size_t range, const StepArguments& arguments) {
  for (Chunk& chunk : chunks_) {
    if (chunk.range != range) continue;
    if (!overlap_) copy_gradients(chunk);
    device_.synchronize(chunk.arrived);
    const auto started = std::chrono::steady_clock::now();
    adam_on(ranges_[range], chunk.begin, chunk.end, arguments, threads_);
    adam_ms_ +=
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - started)
            .count();
    copy_weights(chunk);
    if (!overlap_) device_.synchronize(left_);
  }
  return left_;
}

void HostEngine::wait_for_weights() { device_.synchronize(left_); }

void HostEngine::wait_for_gradients() {
  for (const Chunk& chunk : chunks_) device_.synchronize(chunk.arrived);
}

void HostEngine::report(StepResult& result) {
  result.d2h_ms += d2h_.take_ms();
  result.h2d_ms += h2d_.take_ms();
  result.adam_ms += adam_ms_;
  adam_ms_ = 0;
}

}  // namespace rr::optim
