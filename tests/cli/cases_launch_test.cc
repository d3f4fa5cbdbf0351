// Public bug reports about launching: threads, environments, signals, ranks that die.
#include <signal.h>

#include <catch2/catch.hpp>
#include <regex>

#include "cli/program.h"

namespace rr::test {
namespace {

const std::string kWholeOffload =
    " optimizer.optimizer_cpu_offload=true optimizer.optimizer_offload_fraction=1.0";

// A shell loop until `text` stands in file log, for 20 seconds at most.
std::string wait_for(const std::string& text) {
  return "for i in $(seq 200); do grep -q '" + text + "' log && break; sleep 0.1; done\n";
}

std::string endless(const std::string& more = "") {
  return "\"$RR\" " + recipe("td") + " train.train_iters=1000000 logger.log_interval=5" + more +
         " >log 2>log2 & job=$!\n";
}

// Whether a process of this folder's run is left.
std::string count_left(const std::string& mark) {
  return "sleep 0.5; echo left $(pgrep -f 'run_recipe.*[" + mark.substr(0, 1) + "]" +
         mark.substr(1) + "' | wc -l)\n";
}

}  // namespace

TEST_CASE(
    "B091 B092: the count of threads is printed, and warned of where it hurts the optimizer") {
  const Scratch folder;
  const std::string base = "\"$RR\" " + recipe("td") + " train.train_iters=1" + kWholeOffload;
  const Outcome one = shell("OMP_NUM_THREADS=1 " + base, folder);
  REQUIRE(one.out.find("threads per rank: 1 (OMP_NUM_THREADS)") != std::string::npos);
  const Outcome many = shell("OMP_NUM_THREADS=64 " + base, folder);
  REQUIRE(many.out.find("threads per rank: 64 (OMP_NUM_THREADS)") != std::string::npos);
  // The mask counts: one core, one thread, of one rank as of two.
  const Outcome masked = shell("unset OMP_NUM_THREADS; taskset -c 0 " + base, folder);
  REQUIRE(masked.out.find("threads per rank: 1\n") != std::string::npos);
  REQUIRE(masked.err.find("OMP_NUM_THREADS") == std::string::npos);
  if (shell("nproc", folder).out != "1\n")
    REQUIRE(one.err.find("OMP_NUM_THREADS=1 runs the offloaded optimizer on 1 of") !=
            std::string::npos);
  if (std::stoi(shell("nproc", folder).out) < 64)
    REQUIRE(many.err.find("OMP_NUM_THREADS=64 is more than") != std::string::npos);
}

TEST_CASE("B093: a rank that its launcher binds to one core is told the mask and a fix") {
  const Scratch folder;
  if (std::stoi(shell("nproc", folder).out) < 2) {
    WARN("skipped: one core only");
    return;
  }
  const std::string base = " \"$RR\" " + recipe("td") + " train.train_iters=1" + kWholeOffload;
  const std::string launch = "unset OMP_NUM_THREADS; mpirun -n 1 ";
  const Outcome bound = shell(launch + "--bind-to core" + base, folder);
  INFO(bound.err);
  REQUIRE(bound.code == 0);
  REQUIRE(std::regex_search(bound.err, std::regex("bound to core \\d+ of the \\d+")));
  REQUIRE(bound.err.find("--bind-to none") != std::string::npos);
  const Outcome free = shell(launch + "--bind-to none" + base, folder);
  REQUIRE(free.code == 0);
  REQUIRE(free.err.find("bound to") == std::string::npos);
}

TEST_CASE("B114: variables of other launchers, wrong or missing, change nothing") {
  const Scratch folder;
  const std::string wrong =
      "SLURM_PROCID=3 SLURM_LOCALID=9 SLURM_NTASKS=16 RANK=5 LOCAL_RANK=7 WORLD_SIZE=64"
      " OMPI_COMM_WORLD_LOCAL_RANK=4 MV2_COMM_WORLD_RANK=2 ";
  const std::string missing =
      "-u OMPI_COMM_WORLD_RANK -u OMPI_COMM_WORLD_SIZE -u OMPI_COMM_WORLD_LOCAL_SIZE ";
  const std::string two = recipe("td") + " train.train_iters=2";
  REQUIRE(shell("env " + wrong + "\"$RR\" " + two + " logger.run_dir=alone", folder).code == 0);
  REQUIRE(series(folder.path() / "alone", "lm loss").size() == 2);
  const Outcome plain = run(2, two + " logger.run_dir=plain", folder);
  REQUIRE(plain.code == 0);
  REQUIRE(plain.out.find("data 2 ") != std::string::npos);
  const Outcome odd = shell("mpirun --oversubscribe -n 2 env " + missing + wrong + "\"$RR\" " +
                                two + " logger.run_dir=odd",
                            folder);
  INFO(odd.err);
  REQUIRE(odd.code == 0);
  REQUIRE(series(folder.path() / "odd", "lm loss") == series(folder.path() / "plain", "lm loss"));
}

TEST_CASE("B105: a rank killed while it sets up ends the job, which names rank and signal") {
  const Scratch folder;
  const Outcome outcome =
      shell("mpirun --oversubscribe -n 2 " +
                endless(" model.seq_length=8 dataset.seq_length=8 logger.run_dir=b105") +
                wait_for("threads per rank") +
                "set -- $(pgrep -P $job); kill -9 $2; wait $job; code=$?\n" + count_left("b105") +
                "cat log2; exit $code",
            folder, 60);
  INFO(outcome.out << outcome.err);
  REQUIRE(outcome.code == 128 + SIGKILL);
  REQUIRE(std::regex_search(outcome.out, std::regex("rank 1 .*signal 9")));
  REQUIRE(lines_with(outcome.out, "left 0").size() == 1);
}

TEST_CASE(
    "B116: ranks of other settings, or a rank that cannot write, end the job with a message") {
  const Scratch folder;
  const std::string two = recipe("td") + " train.train_iters=20 logger.run_dir=run";
  const Outcome other = shell("mpirun --oversubscribe -n 1 \"$RR\" " + two + " : -n 1 \"$RR\" " +
                                  two + " optimizer.weight_decay=0.2",
                              folder, 60);
  INFO(other.err);
  REQUIRE(other.code == 2);
  REQUIRE(lines_with(other.err, "rank 1 resolved another configuration").size() == 1);
  // The disk of the rank that writes fills up in the middle of the training.
  if (shell("mkdir small && mount -t tmpfs -o size=64k tmpfs small", folder).code != 0) {
    WARN("skipped: cannot mount a tmpfs");
    return;
  }
  const Outcome full = shell("mpirun --oversubscribe -n 2 \"$RR\" " + recipe("td") +
                                 " train.train_iters=1000000 train.global_batch_size=2"
                                 " logger.run_dir=small/run; code=$?; umount small; exit $code",
                             folder, 60);
  INFO(full.err);
  REQUIRE(lines_with(full.out, "] iteration ").size() > 10);
  REQUIRE(full.code == 1);
  REQUIRE(full.err.find("metrics.jsonl") != std::string::npos);
}

TEST_CASE("B117: what was reported is in the files, whenever the process dies") {
  const Scratch folder;
  const Outcome outcome = shell(endless(" logger.run_dir=run") + wait_for("iteration       10/") +
                                    "kill -9 $job; wait $job; grep -c 'iteration  *10/' log;"
                                    " grep -c '\"iteration\":10,' run/metrics.jsonl",
                                folder, 60);
  INFO(outcome.out << outcome.err);
  REQUIRE(outcome.out == "1\n1\n");
}

TEST_CASE("B139: a signal during an evaluation ends it, and does not wait for its end") {
  const Scratch folder;
  const Outcome outcome =
      shell("\"$RR\" " + recipe("td") +
                " train.train_iters=5 logger.log_interval=1 validation.eval_interval=5"
                " validation.eval_iters=50000 >log & job=$!\n" +
                wait_for("iteration        5/") + "sleep 0.5; kill -TERM $job; wait $job",
            folder, 60);
  INFO(outcome.err);
  REQUIRE(outcome.code == 128 + SIGTERM);
  REQUIRE(lines_with(outcome.err, "stopped by signal 15 after iteration 5 of 5").size() == 1);
}

TEST_CASE("B141 B143: every documented signal ends a run cleanly, through mpirun too") {
  const Scratch folder;
  for (const int number : {SIGINT, SIGUSR1, SIGUSR2}) {
    const Outcome outcome =
        shell(endless() + wait_for("] iteration") + "kill -" + std::to_string(number) +
                  " $job; wait $job; code=$?; cat log2 >&2; exit $code",
              folder, 60);
    INFO(number << outcome.err);
    REQUIRE(outcome.code == 128 + number);
    REQUIRE(lines_with(outcome.err, "stopped by signal " + std::to_string(number)).size() == 1);
  }
  // mpirun passes USR1 on; of TERM it kills its ranks, and may drop what they still say.
  const std::string two =
      "mpirun --oversubscribe -n 2 " + endless(" logger.run_dir=b141") + wait_for("] iteration");
  const std::string end =
      " $job; wait $job; code=$?; cat log2 >&2\n" + count_left("b141") + "exit $code";
  const Outcome user = shell(two + "kill -USR1" + end, folder, 60);
  INFO(user.err);
  REQUIRE(user.code == 128 + SIGUSR1);
  REQUIRE(lines_with(user.err, "stopped by signal 10").size() == 1);
  const Outcome term = shell(two + "kill -TERM" + end, folder, 60);
  REQUIRE(term.code != 0);
  REQUIRE(term.code != 124);
  REQUIRE(term.out == "left 0\n");
}

TEST_CASE("a signal before training ends the process at once") {
  const Scratch folder;
  // Short sequences: the order of many samples takes a while.
  const Outcome outcome = shell(endless(" model.seq_length=2 dataset.seq_length=2") +
                                    wait_for("threads per rank") + "kill -TERM $job; wait $job",
                                folder, 30);
  REQUIRE(outcome.code == 128 + SIGTERM);
}

}  // namespace rr::test
