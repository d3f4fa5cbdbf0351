// Megatron's mock corpus, recomputed (megatron.md 9.3): nothing is stored but the lengths.
#include "data/corpus.h"
#include "data/numpy_random.h"

namespace rr::data {

namespace {

class MockCorpus final : public Corpus {
 public:
  MockCorpus(std::int64_t vocab, std::int64_t end_of_document)
      : vocab_(vocab), end_of_document_(end_of_document), lengths_(100000) {
    Pcg64 random(0);
    for (auto& length : lengths_) length = static_cast<std::int32_t>(random.integer(1, 4096));
  }

  const std::vector<std::int32_t>& lengths() const override { return lengths_; }

  void read(std::int64_t sequence, std::int64_t offset, std::int64_t count,
            std::int64_t* out) const override {
    const std::int64_t last = lengths_[static_cast<std::size_t>(sequence)] - 1;
    for (std::int64_t i = 0; i < count; ++i) {
      out[i] = offset + i == last ? end_of_document_ : (offset + i + 1) % vocab_;
    }
  }

  std::string file() const override { return "mock data"; }
  std::int64_t position(std::int64_t, std::int64_t offset) const override { return offset; }

 private:
  std::int64_t vocab_, end_of_document_;
  std::vector<std::int32_t> lengths_;
};

}  // namespace

std::unique_ptr<Corpus> make_mock(std::int64_t vocab, std::int64_t end_of_document) {
  return std::make_unique<MockCorpus>(vocab, end_of_document);
}

}  // namespace rr::data
