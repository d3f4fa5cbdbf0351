// Private: what a step must know of the whole model: gradient norm, zeros, the norm of the weights,
// and who has a NaN. Each element counts once: on the rank whose slice of a bucket it is in,
// sharded or not, and never in the tied copy.
#pragma once

#include <vector>

#include "optim/buckets.h"
#include "optim/optim.h"
#include "optim/shard.h"

namespace rr::optim {

class Norms {
 public:
  Norms(const Environment& environment, const Memory& memory, const Buckets& buckets,
        const std::vector<Range>& ranges);

  // Waits for the reductions; collective over the world. All ranks get the same result.
  StepResult of_gradients();
  // Of the masters, collective over the world.
  double of_masters();

 private:
  // A stretch of one parameter in this rank's slice of one bucket.
  struct Stretch {
    int buffer = 0;
    std::int64_t begin = 0, end = 0;  // elements of the buffer
  };
  int rank_with_bad_gradient();
  bool finite(int buffer, std::int64_t begin, std::int64_t end);
  void read_masters(const Stretch& stretch, std::int64_t begin, std::int64_t count,
                    float* out) const;

  device::Device& device_;
  comm::Communicator& world_;
  ThreadPool& threads_;
  const Memory& memory_;
  const Buckets& buckets_;
  const std::vector<Range>& ranges_;
  bool count_zeros_;
  std::vector<std::vector<Stretch>> stretches_;  // per bucket of Buckets::list
};

}  // namespace rr::optim
