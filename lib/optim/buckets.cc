// Reduction of gradient buckets and exchange of weights.
#include "optim/buckets.h"

#include <algorithm>
#include <tuple>

namespace rr::optim {

namespace {

template <class T>
std::span<T> view(Span span) {
  return {span.as<T>(), static_cast<std::size_t>(span.bytes) / sizeof(T)};
}

// The tensor of this stage that another stage holds too, if any: the tied copy on the last stage,
// and what it is a copy of on the first.
const plan::Parameter* shared_parameter(const plan::Plan& plan, int stage_index) {
  const plan::StagePlan& stage = plan.stages[static_cast<std::size_t>(stage_index)];
  for (const plan::Parameter& copy : plan.stages.back().parameters) {
    if (!copy.duplicate) continue;
    for (const plan::Parameter& mine : stage.parameters) {
      if (stage.head ? mine.duplicate : stage.embedding && mine.name == copy.init_name)
        return &mine;
    }
  }
  return nullptr;
}

}  // namespace

Buckets::Buckets(const Environment& environment, const Memory& memory)
    : device_(environment.device),
      groups_(environment.groups),
      memory_(memory),
      sharded_(environment.plan.optimizer.sharded) {
  const plan::Plan& plan = environment.plan;
  const plan::StagePlan& stage = plan.stages[static_cast<std::size_t>(environment.rank.stage)];
  const plan::Parameter* shared = shared_parameter(plan, environment.rank.stage);
  for (std::size_t b = 0; b < stage.buffers.size(); ++b) {
    const plan::FlatBuffer& buffer = stage.buffers[b];
    for (std::size_t i = 0; i < buffer.buckets.size(); ++i) {
      BucketView bucket;
      bucket.buffer = static_cast<int>(b);
      bucket.index = static_cast<int>(i);
      bucket.bucket = buffer.buckets[i];
      bucket.group = &groups_[buffer.expert ? plan::Group::expert_data : plan::Group::data];
      bucket.own = plan::shard_of(bucket.bucket, bucket.group->rank(), bucket.group->size());
      if (shared && shared->buffer == bucket.buffer && shared->offset >= bucket.bucket.begin &&
          shared->offset < bucket.bucket.end) {
        bucket.shared = shared;
      }
      list_.push_back(bucket);
    }
  }
  std::stable_sort(list_.begin(), list_.end(), [](const BucketView& a, const BucketView& b) {
    return std::tie(a.bucket.first_layer, a.buffer) < std::tie(b.bucket.first_layer, b.buffer);
  });
  layers_.insert(stage.layers.begin(), stage.layers.end());
  if (stage.embedding) layers_.insert(0);
  if (stage.head) layers_.insert(static_cast<int>(plan.model.num_layers) + 1);

  // Backward completes the bucket with the highest first layer first. The shared tensor's bucket
  // goes last, since it waits for the other stage.
  for (int i = static_cast<int>(list_.size()) - 1; i >= 0; --i) order_.push_back(i);
  std::stable_partition(order_.begin(), order_.end(),
                        [&](int i) { return list_[index(i)].shared == nullptr; });
  reduced_.resize(list_.size());
  gathered_.resize(list_.size());
}

void Buckets::begin() {
  ready_.clear();
  issued_ = 0;
}

std::vector<int> Buckets::ready(int layer) {
  ready_.insert(layer);
  return issue(false);
}

std::vector<int> Buckets::flush() { return issue(true); }

std::vector<int> Buckets::issue(bool all) {
  std::vector<int> queued;
  for (; issued_ < order_.size(); ++issued_) {
    const plan::Bucket& bucket = list_[index(order_[issued_])].bucket;
    const auto from = layers_.lower_bound(bucket.first_layer);
    const auto to = layers_.upper_bound(bucket.last_layer);
    if (!all && !std::all_of(from, to, [&](int layer) { return ready_.count(layer) > 0; })) break;
    reduce(order_[issued_]);
    queued.push_back(order_[issued_]);
  }
  return queued;
}

void Buckets::reduce(int number) {
  const BucketView& bucket = list_[index(number)];
  // Sums over the pair of stages are needed before the slices differ.
  comm::Communicator* pair = bucket.shared ? &groups_[plan::Group::embedding] : nullptr;
  if (bucket.group->size() == 1 && !pair) {
    reduced_[index(number)] = device_.record(device::Stream::compute);
    return;
  }
  device_.wait(device::Stream::comm, device_.record(device::Stream::compute));
  device_.run(device::Stream::comm, [this, &bucket, pair] {
    if (pair) {
      const std::int64_t begin = bucket.shared->offset;
      pair->all_reduce_sum(
          view<float>(memory_.gradients(bucket.buffer, begin, begin + bucket.shared->size)));
    }
    if (bucket.group->size() == 1) return;
    bucket.group->reduce_scatter_sum(
        view<const float>(memory_.gradients(bucket.buffer, bucket.bucket.begin, bucket.bucket.end)),
        view<float>(memory_.gradients(bucket.buffer, bucket.own.begin, bucket.own.end)));
  });
  reduced_[index(number)] = device_.record(device::Stream::comm);
}

void Buckets::gather_gradients(int number) {
  const BucketView& bucket = list_[index(number)];
  if (bucket.group->size() == 1) return;
  device_.run(device::Stream::comm, [this, &bucket] {
    bucket.group->all_gather(
        view<const std::byte>(memory_.gradients(bucket.buffer, bucket.own.begin, bucket.own.end)),
        view<std::byte>(memory_.gradients(bucket.buffer, bucket.bucket.begin, bucket.bucket.end)));
  });
  reduced_[index(number)] = device_.record(device::Stream::comm);
}

void Buckets::gather_weights(int number, const device::Event& written) {
  const BucketView& bucket = list_[index(number)];
  if (!sharded_ || bucket.group->size() == 1) {
    gathered_[index(number)] = written;
    return;
  }
  device_.wait(device::Stream::comm, device_.record(device::Stream::compute));
  device_.wait(device::Stream::comm, written);
  device_.run(device::Stream::comm, [this, &bucket] {
    bucket.group->all_gather(
        view<const std::byte>(memory_.weights(bucket.buffer, bucket.own.begin, bucket.own.end)),
        view<std::byte>(memory_.weights(bucket.buffer, bucket.bucket.begin, bucket.bucket.end)));
  });
  gathered_[index(number)] = device_.record(device::Stream::comm);
}

void Buckets::wait_for(int layer) {
  for (std::size_t i = 0; i < list_.size(); ++i) {
    if (layer < list_[i].bucket.first_layer || layer > list_[i].bucket.last_layer) continue;
    device_.wait(device::Stream::compute, gathered_[i]);
  }
}

void Buckets::wait_for_all() {
  for (const device::Event& event : gathered_) device_.synchronize(event);
}

}  // namespace rr::optim
