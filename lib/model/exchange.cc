// Rows leave sorted by global expert, so by rank; they arrive by (rank, expert) and are sorted by
// (expert, rank) for the experts.
#include <algorithm>
#include <numeric>

#include "model/moe.h"
#include "model/node.h"

namespace rr::model {

namespace {

std::span<const std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}
std::span<std::byte> writable_bytes_of(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()};
}

std::vector<std::int64_t> times(std::vector<std::int64_t> rows, std::int64_t bytes) {
  for (std::int64_t& count : rows) count *= bytes;
  return rows;
}

at::Tensor gathered(DType type, const at::Tensor& in, const std::vector<std::int32_t>& index,
                    std::int64_t width) {
  const auto count = static_cast<std::int64_t>(index.size());
  at::Tensor out = empty({count, width}, type);
  gather_rows(type, count, width, in.const_data_ptr(), index.data(), out.data_ptr());
  return out;
}

// received[rank][local expert] -> offsets of experts and the two orders of rows.
void sort_received(const std::vector<std::int64_t>& received, std::int64_t ranks,
                   std::vector<std::int64_t>& offsets,
                   std::vector<std::int32_t>& received_of_sorted,
                   std::vector<std::int32_t>& sorted_of_received) {
  const auto local = static_cast<std::int64_t>(received.size()) / ranks;
  const auto count = [&](std::int64_t rank, std::int64_t expert) {
    return received[static_cast<std::size_t>(rank * local + expert)];
  };
  offsets.assign(1, 0);
  for (std::int64_t e = 0; e < local; ++e) {
    std::int64_t rows = 0;
    for (std::int64_t r = 0; r < ranks; ++r) rows += count(r, e);
    offsets.push_back(offsets.back() + rows);
  }
  if (ranks == 1) return;
  received_of_sorted.resize(static_cast<std::size_t>(offsets.back()));
  sorted_of_received.resize(received_of_sorted.size());
  std::vector<std::int64_t> next(offsets.begin(), offsets.end() - 1);
  std::int32_t arrived = 0;
  for (std::int64_t r = 0; r < ranks; ++r) {
    for (std::int64_t e = 0; e < local; ++e) {
      for (std::int64_t i = 0; i < count(r, e); ++i, ++arrived) {
        const auto sorted = static_cast<std::size_t>(next[static_cast<std::size_t>(e)]++);
        received_of_sorted[sorted] = arrived;
        sorted_of_received[static_cast<std::size_t>(arrived)] = static_cast<std::int32_t>(sorted);
      }
    }
  }
}

}  // namespace

Exchange::Exchange(const RouterShape& shape, const Routing& routing, comm::Communicator& group)
    : tokens_(shape.tokens),
      per_token_(shape.per_token),
      local_(sort_by_expert(shape, routing)),
      group_(group) {
  const std::int64_t ranks = group.size();
  RR_CHECK(shape.experts % ranks == 0, "experts over ranks");
  const std::int64_t local = shape.experts / ranks;
  std::vector<std::int64_t> received = routing.counts;
  if (ranks > 1) {
    const std::vector<std::int64_t> each(static_cast<std::size_t>(ranks),
                                         local * static_cast<std::int64_t>(sizeof(std::int64_t)));
    group.all_to_all(std::as_bytes(std::span(routing.counts)), each,
                     std::as_writable_bytes(std::span(received)), each);
  }
  for (std::int64_t r = 0; r < ranks; ++r) {
    const auto total = [&](const std::vector<std::int64_t>& counts) {
      return std::accumulate(counts.begin() + r * local, counts.begin() + (r + 1) * local,
                             std::int64_t{0});
    };
    send_.push_back(total(routing.counts));
    receive_.push_back(total(received));
  }
  sort_received(received, ranks, offsets_, received_of_sorted_, sorted_of_received_);
}

at::Tensor Exchange::outward(DType type, const at::Tensor& send, std::int64_t width) {
  if (group_.size() == 1) return send;
  const std::int64_t bytes = width * size_of(type);
  const at::Tensor received = empty({rows(), width}, type);
  group_.all_to_all(bytes_of(send), times(send_, bytes), writable_bytes_of(received),
                    times(receive_, bytes));
  return gathered(type, received, received_of_sorted_, width);
}

at::Tensor Exchange::homeward(DType type, const at::Tensor& rows, std::int64_t width) {
  if (group_.size() == 1) return rows;
  const std::int64_t bytes = width * size_of(type);
  const at::Tensor send = gathered(type, rows, sorted_of_received_, width);
  at::Tensor home = empty({tokens_ * per_token_, width}, type);
  group_.all_to_all(bytes_of(send), times(receive_, bytes), writable_bytes_of(home),
                    times(send_, bytes));
  return home;
}

at::Tensor Exchange::to_rows(DType type, const at::Tensor& tokens) {
  const std::int64_t width = tokens.size(1);
  return outward(type, gathered(type, tokens, local_.token_of_row, width), width);
}

at::Tensor Exchange::to_tokens(DType type, const at::Tensor& rows, const at::Tensor& residual) {
  const std::int64_t width = rows.size(1);
  const at::Tensor home = homeward(type, rows, width);
  at::Tensor out = empty({tokens_, width}, type);
  sum_rows(type, tokens_, per_token_, width, home.const_data_ptr(), local_.row_of_slot.data(),
           residual.defined() ? residual.const_data_ptr() : nullptr, out.data_ptr());
  return out;
}

at::Tensor Exchange::values_to_rows(const float* values) {
  at::Tensor send = empty({tokens_ * per_token_, 1}, DType::f32);
  gather_rows(DType::f32, tokens_ * per_token_, 1, values, local_.slot_of_row.data(),
              send.data_ptr());
  return outward(DType::f32, send, 1).view({rows()});
}

at::Tensor Exchange::values_to_slots(const at::Tensor& row_values) {
  const at::Tensor home = homeward(DType::f32, row_values, 1);
  at::Tensor out = empty({tokens_, per_token_}, DType::f32);
  gather_rows(DType::f32, tokens_ * per_token_, 1, home.const_data_ptr(), local_.row_of_slot.data(),
              out.data_ptr());
  return out;
}

}  // namespace rr::model
