// For every rule: overrides that just break it, and overrides that just keep it.
#pragma once

#include <string>
#include <vector>

namespace rr::test {

struct Row {
  std::string rule;  // its summary
  std::string text;  // part of what it says
  std::vector<std::string> breaks, keeps;
  bool moe = false;  // over the mixture-of-experts base
  int world = 1;
  int good_world = 0;  // 0: the same
};

// Rows about shape, cutting and batches; about experts; about offload, optimizer and the rest.
std::vector<Row> shape_rows();
std::vector<Row> expert_rows();
std::vector<Row> offload_rows();
std::vector<Row> optimizer_rows();
std::vector<Row> run_rows();
// About fine-grained offload; about further combinations that can be planned only.
std::vector<Row> fine_rows();
std::vector<Row> combination_rows();

inline std::vector<Row> rule_rows() {
  std::vector<Row> all;
  for (const auto& rows : {shape_rows(), expert_rows(), offload_rows(), optimizer_rows(),
                           run_rows(), fine_rows(), combination_rows()}) {
    all.insert(all.end(), rows.begin(), rows.end());
  }
  return all;
}

}  // namespace rr::test
