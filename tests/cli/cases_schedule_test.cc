// Public cases about the learning rate, through the program.
#include <catch2/catch.hpp>

#include "cli/program.h"

namespace rr::test {

TEST_CASE("B044: the logged rate is the one of the update: at 0 no weight moves on either side") {
  const Scratch folder;
  const std::string half =
      " optimizer.optimizer_cpu_offload=true optimizer.optimizer_offload_fraction=0.5"
      " logger.log_params_norm=true train.train_iters=4";
  const auto norms = [&](const std::string& rates) {
    const Outcome outcome = run(1, recipe("td") + half + rates + " logger.run_dir=run", folder);
    INFO(outcome.err);
    REQUIRE(outcome.code == 0);
    const std::vector<double> values = series(folder.path() / "run", "params_norm");
    REQUIRE(values.size() == 4);
    return values;
  };
  const std::vector<double> still =
      norms(" optimizer.lr=0 optimizer.min_lr=0 scheduler.lr_warmup_init=0");
  for (const double norm : still) CHECK(norm == still[0]);
  const std::vector<double> moving = norms(" optimizer.lr=1e-3 scheduler.lr_warmup_init=0");
  // The first iteration runs at lr_warmup_init, as the reference's does.
  CHECK(moving[0] == still[0]);
  CHECK(moving[1] != moving[0]);
}

}  // namespace rr::test
