// Runs the built program as a user does and looks at what it leaves.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace rr::test {

struct Outcome {
  int code = 0;  // 124: it ran into the time limit
  std::string out, err;
};

// A folder of its own for one test case, removed at the end.
class Scratch {
 public:
  Scratch();
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const std::filesystem::path& path() const { return path_; }
  std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

// `sh -c command` in `folder`, stopped after `seconds`. "$RR" is the program.
Outcome shell(const std::string& command, const Scratch& folder, int seconds = 120);

// The program on `ranks` ranks (1: without mpirun).
Outcome run(int ranks, const std::string& arguments, const Scratch& folder, int seconds = 120);

// "--recipe .../tests/data/cli/NAME.yaml".
std::string recipe(const std::string& name);

// One number of every logged iteration of a run folder's metrics.jsonl, exact.
std::vector<double> series(const std::filesystem::path& run_folder, const std::string& key);

// The logged losses and gradient norms of a run.
struct Series {
  std::vector<double> loss, norm;
  bool operator==(const Series&) const = default;
};

// Runs to the end, in the run folder `name`; requires success and at least one logged iteration.
Series train_series(int ranks, const std::string& arguments, const Scratch& folder,
                    const std::string& name);

// Requires every loss and norm to agree, relative to the expected one.
void require_close(const Series& actual, const Series& expected, double tolerance);

// Lines of `text` that hold `part`.
std::vector<std::string> lines_with(const std::string& text, const std::string& part);

}  // namespace rr::test
