// What a run prints and leaves, as users and their parsers see it.
#include <signal.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <regex>

#include "cli/program.h"

namespace rr::test {

TEST_CASE("a run prints the reference's training line and leaves metrics and its configuration") {
  const Scratch folder;
  const Outcome outcome =
      run(1, recipe("td") + " train.train_iters=3 logger.run_dir=here logger.log_throughput=true",
          folder);
  INFO(outcome.err);
  REQUIRE(outcome.code == 0);
  const std::vector<std::string> lines = lines_with(outcome.out, "] iteration ");
  REQUIRE(lines.size() == 3);
  const std::regex line(
      R"( \[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] iteration +2/ +3 \| consumed samples: +16 \|)"
      R"( elapsed time per iteration \(ms\): \d+\.\d \| throughput per GPU \(TFLOP/s/GPU\): \d+\.\d \|)"
      R"( learning rate: \d\.\d{6}E[-+]\d\d \| global batch size: +8 \| lm loss: \d\.\d{6}E[-+]\d\d \|)"
      R"( loss scale: 1\.0 \| grad norm: \d+\.\d{3} \| number of skipped iterations: +0 \|)"
      R"( number of nan iterations: +0 \|)");
  INFO(lines[1]);
  REQUIRE(std::regex_match(lines[1], line));
  REQUIRE(series(folder.path() / "here", "lm loss").size() == 3);
  REQUIRE(lines_with(outcome.out, "(after 1 iterations) memory (GB)").size() == 1);
  REQUIRE(lines_with(outcome.out, "(after 2 iterations) memory (GB)").size() == 1);

  SECTION("the written configuration starts the same run again, to the same bits") {
    REQUIRE(run(1, "--recipe here/run_config.yaml logger.run_dir=again", folder).code == 0);
    REQUIRE(series(folder.path() / "again", "lm loss") ==
            series(folder.path() / "here", "lm loss"));
  }
}

TEST_CASE("the planned state of a rank is what it allocates, to the byte, in both pools") {
  const Scratch folder;
  const std::string precision = GENERATE("fp32", "bf16_mixed");
  const Outcome outcome = run(2,
                              recipe("tm") + " train.train_iters=2 mixed_precision=" + precision +
                                  " model.expert_model_parallel_size=2"
                                  " optimizer.optimizer_cpu_offload=true"
                                  " optimizer.optimizer_offload_fraction=0.5",
                              folder);
  INFO(outcome.err << outcome.out);
  REQUIRE(outcome.code == 0);
  for (const std::string row : {"weights, gradients, optimizer", "offloaded state and staging"}) {
    const std::vector<std::string> rows = lines_with(outcome.out, row);
    REQUIRE(rows.size() == 1);
    std::smatch numbers;
    REQUIRE(std::regex_search(rows[0], numbers, std::regex(R"(([\d,]+) +([\d,]+))")));
    REQUIRE(numbers[1] == numbers[2]);
    REQUIRE(numbers[1] != "0");
  }
}

TEST_CASE("B118: with a pipeline there is one line per iteration, with the true loss") {
  const Scratch folder;
  const Outcome outcome =
      run(2, recipe("td") + " model.pipeline_model_parallel_size=2 train.train_iters=3", folder);
  INFO(outcome.err);
  REQUIRE(outcome.code == 0);
  REQUIRE(lines_with(outcome.out, "] iteration ").size() == 3);
  REQUIRE(lines_with(outcome.out, "lm loss: 6.").size() == 3);
}

TEST_CASE("evaluation prints the validation loss and leaves the training as it was") {
  const Scratch folder;
  REQUIRE(run(1, recipe("td") + " logger.run_dir=plain", folder).code == 0);
  const Outcome outcome = run(1,
                              recipe("td") +
                                  " logger.run_dir=with validation.eval_interval=4"
                                  " validation.eval_iters=2",
                              folder);
  INFO(outcome.err);
  REQUIRE(outcome.code == 0);
  REQUIRE(lines_with(outcome.out, "validation loss at iteration 4 | lm loss value:").size() == 1);
  REQUIRE(lines_with(outcome.out, "validation loss at iteration 8 | lm loss value:").size() == 1);
  REQUIRE(series(folder.path() / "with", "lm loss") == series(folder.path() / "plain", "lm loss"));
}

TEST_CASE("a loss that is not finite stops all ranks and names iteration and rank") {
  const Scratch folder;
  const Outcome outcome = run(2,
                              recipe("td") +
                                  " model.pipeline_model_parallel_size=2"
                                  " optimizer.lr=1e30 optimizer.clip_grad=0"
                                  " optimizer.min_lr=1e30",
                              folder, 60);
  INFO(outcome.err);
  REQUIRE(outcome.code == 1);
  const std::vector<std::string> told = lines_with(outcome.err, "found NaN or infinity");
  REQUIRE(told.size() == 1);
  REQUIRE(std::regex_search(told[0], std::regex("iteration \\d+ on rank \\d")));
}

TEST_CASE("B115: a killed rank takes the job down within ten seconds") {
  const Scratch folder;
  // The first rank's line tells that training runs; then one of the two ranks is killed.
  const Outcome outcome = shell(
      "mpirun --oversubscribe -n 2 \"$RR\" " + recipe("td") +
          " train.train_iters=1000000 logger.log_interval=10 >log 2>&1 & job=$!\n"
          "for i in $(seq 100); do grep -q '] iteration' log && break; sleep 0.2; done\n"
          "victim=$(pgrep -P $job -f run_recipe | head -1)\n"
          "[ -n \"$victim\" ] || victim=$(pgrep -f 'run_recipe --recipe.*train_iters=1000000' |"
          " grep -v $job | head -1)\n"
          "start=$(date +%s); kill -9 $victim; wait $job; code=$?\n"
          "echo took $(( $(date +%s) - start )); exit $code",
      folder, 90);
  INFO(outcome.out << outcome.err);
  REQUIRE(outcome.code != 0);
  REQUIRE(outcome.code != 124);
  std::smatch took;
  REQUIRE(std::regex_search(outcome.out, took, std::regex("took (\\d+)")));
  REQUIRE(std::stoi(took[1]) <= 10);
}

TEST_CASE("B143: a signal ends a run after the iteration it came in, with its own exit code") {
  const Scratch folder;
  const Outcome outcome =
      shell("\"$RR\" " + recipe("td") +
                " train.train_iters=1000000 logger.log_interval=10 >log & job=$!\n"
                "for i in $(seq 100); do grep -q '] iteration' log && break;"
                " sleep 0.2; done\n"
                "kill -TERM $job; wait $job",
            folder, 60);
  INFO(outcome.err);
  REQUIRE(outcome.code == 128 + SIGTERM);
  REQUIRE(lines_with(outcome.err, "stopped by signal 15").size() == 1);
}

TEST_CASE("exit_interval and exit_duration_in_mins end a run of all ranks early, as done") {
  const Scratch folder;
  const Outcome interval =
      run(2, recipe("td") + " train.train_iters=1000 train.exit_interval=3", folder, 60);
  INFO(interval.err);
  REQUIRE(interval.code == 0);
  REQUIRE(lines_with(interval.out, "] iteration ").size() == 3);
  const Outcome time = run(
      2, recipe("td") + " train.train_iters=1000000 train.exit_duration_in_mins=0.02", folder, 60);
  INFO(time.err);
  REQUIRE(time.code == 0);
  REQUIRE(lines_with(time.err, "train.exit_duration_in_mins").size() == 1);
}

TEST_CASE("the questions are answered without a run") {
  const Scratch folder;
  REQUIRE(run(1, "--help", folder).code == 0);
  REQUIRE(run(1, "--version", folder).out.starts_with("run_recipe "));
  REQUIRE(run(1, "--list-recipes", folder).out.find("tiny_moe_pretrain") != std::string::npos);
  REQUIRE(run(1, "--explain optimizer.optimizer_offload_fraction", folder).out.find("[0, 1]") !=
          std::string::npos);
  REQUIRE(run(1, "", folder).code == 2);
  const Outcome launch = run(1, "--recipe tiny_moe_pretrain_config --print-launch", folder);
  REQUIRE(launch.code == 0);
  REQUIRE(launch.out.starts_with("mpirun -n 4 "));
  const Outcome config = run(1, recipe("td") + " optimizer.lr=0.5 --print-config", folder);
  REQUIRE(config.out.find("lr: 0.5") != std::string::npos);
}

TEST_CASE("the reference's smoke command is planned word for word") {
  const Scratch folder;
  const Outcome outcome =
      run(1,
          "--recipe qwen3_30b_a3b_pretrain_config optimizer.optimizer_cpu_offload=True "
          "optimizer.optimizer_offload_fraction=0.5 train.train_iters=20 "
          "train.global_batch_size=8 train.micro_batch_size=1 --dry-run",
          folder);
  INFO(outcome.err);
  REQUIRE(outcome.code == 0);
  REQUIRE(outcome.out.find("mpirun -n 16 ") != std::string::npos);
}

}  // namespace rr::test
