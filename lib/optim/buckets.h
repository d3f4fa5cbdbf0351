// Private: the collectives of one rank's buckets, on the comm stream, in an order that all ranks of
// a stage share: gradients reduced from the last bucket to the first, weights gathered from the
// first to the last.
#pragma once

#include <set>
#include <vector>

#include "optim/optim.h"
#include "optim/shard.h"

namespace rr::optim {

// A bucket with its group and this rank's place in it.
struct BucketView {
  int buffer = 0;
  int index = 0;  // in FlatBuffer::buckets
  plan::Bucket bucket;
  comm::Communicator* group = nullptr;  // replicas of these parameters
  plan::Slice own;                      // this rank's part of the bucket, sharded or not
  // The embedding or its copy on another stage: their gradients are summed first.
  const plan::Parameter* shared = nullptr;
};

class Buckets {
 public:
  Buckets(const Environment& environment, const Memory& memory);

  // By first layer, dense before expert.
  const std::vector<BucketView>& list() const { return list_; }
  // In which they are reduced.
  const std::vector<int>& order() const { return order_; }

  void begin();
  // Queues the reductions that `layer` completes, and all that remain with flush(). After the
  // bucket's event `own` holds the sums of the group; the rest of the bucket is as it was. Returns
  // the buckets queued, in order.
  std::vector<int> ready(int layer);
  std::vector<int> flush();
  // Queues the exchange of the reduced parts, so that everybody has the whole bucket.
  void gather_gradients(int bucket);
  // The last thing queued on the bucket's gradients.
  const device::Event& reduced(int bucket) const { return reduced_[index(bucket)]; }

  // Queues the exchange of weights once `written`, and what the compute stream did, has passed.
  void gather_weights(int bucket, const device::Event& written);
  void wait_for(int layer);  // its weights are here
  void wait_for_all();

 private:
  static std::size_t index(int bucket) { return static_cast<std::size_t>(bucket); }
  std::vector<int> issue(bool all);
  void reduce(int bucket);

  device::Device& device_;
  const comm::Groups& groups_;
  const Memory& memory_;
  bool sharded_;
  std::vector<BucketView> list_;
  std::set<int> layers_;    // of this stage
  std::vector<int> order_;  // of reductions
  std::set<int> ready_;     // layers
  std::size_t issued_ = 0;  // of order_
  std::vector<device::Event> reduced_, gathered_;
};

}  // namespace rr::optim
