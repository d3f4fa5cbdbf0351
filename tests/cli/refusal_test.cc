// Mistakes of the user: exit code 2, one message that says what would work, nothing started.
#include <catch2/catch.hpp>
#include <fstream>

#include "cli/program.h"

namespace rr::test {
namespace {

// `arguments` are refused on `ranks` ranks with every one of `parts` in the message, said once.
void require_refused(int ranks, const std::string& arguments, const std::vector<std::string>& parts,
                     const Scratch& folder) {
  const Outcome outcome = run(ranks, arguments, folder, 60);
  INFO(arguments);
  INFO(outcome.err);
  REQUIRE(outcome.code == 2);
  for (const std::string& part : parts) {
    INFO(part);
    REQUIRE(outcome.err.find(part) != std::string::npos);
  }
  REQUIRE(lines_with(outcome.err, parts.front()).size() == 1);
  REQUIRE(lines_with(outcome.out, "] iteration ").empty());
}

std::string corpus(const Scratch& folder, const std::string& name, std::size_t bytes) {
  std::ofstream(folder.file(name + ".txt")) << std::string(bytes, 'x');
  const Outcome outcome =
      shell("\"$RR\" data build --input " + name + ".txt --output " + name, folder);
  INFO(outcome.err);
  REQUIRE(outcome.code == 0);
  return recipe("td") + " tokenizer.tokenizer_type=ByteTokenizer model.vocab_size=257" +
         " tokenizer.vocab_size=257 dataset.split=\"'1,0,0'\" dataset.data_path=[" + name + "]";
}

}  // namespace

TEST_CASE("a missing recipe is refused with the names there are") {
  const Scratch folder;
  require_refused(1, "--recipe tiny_gpt_pretran", {"tiny_gpt_pretran", "tiny_gpt_pretrain"},
                  folder);
}

TEST_CASE("B014: a misspelt key is refused with the nearest one, once for all ranks") {
  const Scratch folder;
  const std::string arguments = recipe("td") + " optimizer.optimzer_cpu_offload=true";
  require_refused(1, arguments, {"optimzer_cpu_offload", "optimizer.optimizer_cpu_offload"},
                  folder);
  require_refused(2, arguments, {"optimzer_cpu_offload", "optimizer.optimizer_cpu_offload"},
                  folder);
}

TEST_CASE("B016: an argument that is no override is refused, never dropped") {
  const Scratch folder;
  require_refused(1, recipe("td") + " --model.num_layers=2", {"--model.num_layers"}, folder);
  require_refused(1, recipe("td") + " model.num_layers",
                  {"Expected override in KEY=VALUE form, got model.num_layers"}, folder);
  require_refused(1, recipe("td") + " -xy 3", {"Unknown option: -xy"}, folder);
}

TEST_CASE("all problems are told at once") {
  const Scratch folder;
  const Outcome outcome = run(1,
                              recipe("td") +
                                  " optimizer.lr=fast train.micro_batch_size=3"
                                  " model.num_layer=2",
                              folder);
  REQUIRE(outcome.code == 2);
  REQUIRE(lines_with(outcome.err, "optimizer.lr").size() >= 1);
  REQUIRE(lines_with(outcome.err, "model.num_layer").size() >= 1);
}

TEST_CASE("activation offload with a pipeline is refused with the reference's text") {
  const Scratch folder;
  require_refused(2,
                  recipe("td") +
                      " model.pipeline_model_parallel_size=2 model.cpu_offloading=true"
                      " model.cpu_offloading_num_layers=1",
                  {"Currently there is no support for Pipeline parallelism with CPU offloading"},
                  folder);
}

TEST_CASE("a world that does not fit is refused with those that do") {
  const Scratch folder;
  require_refused(3, recipe("td") + " model.pipeline_model_parallel_size=2",
                  {"is not divisible by", "2"}, folder);
}

TEST_CASE("tensor parallelism is planned, and a run of it refused by name") {
  const Scratch folder;
  const std::string arguments = recipe("td") + " model.tensor_model_parallel_size=2";
  REQUIRE(run(1, arguments + " --dry-run --world-size 2", folder).code == 0);
  require_refused(2, arguments, {"model.tensor_model_parallel_size"}, folder);
}

TEST_CASE("a missing data file is refused by the name of the file") {
  const Scratch folder;
  const std::string arguments = recipe("td") +
                                " dataset.data_path=[nowhere] "
                                "dataset.split=\"'1,0,0'\"";
  require_refused(1, arguments, {"nowhere.idx"}, folder);
  require_refused(2, arguments, {"nowhere.idx"}, folder);
}

TEST_CASE("a run does not choose its offload fraction for a machine that nobody named") {
  const Scratch folder;
  const std::string arguments = recipe("td") + " optimizer.optimizer_offload_fraction=auto";
  require_refused(1, arguments, {"this run has no machine", "--dry-run --machine"}, folder);
  const Outcome plan = run(1, arguments + " --dry-run --machine desktop_24g", folder);
  INFO(plan.err);
  REQUIRE(plan.code == 0);
  REQUIRE(plan.out.find("auto: the smallest that fits machine desktop_24g") != std::string::npos);
}

TEST_CASE("B136: a truncated data file is refused with its name and size") {
  const Scratch folder;
  const std::string arguments = corpus(folder, "corpus", 5000);
  REQUIRE(run(1, arguments + " train.train_iters=1", folder).code == 0);
  std::filesystem::resize_file(folder.path() / "corpus.bin", 4999);
  require_refused(1, arguments, {"corpus.bin"}, folder);
}

TEST_CASE("a corpus shorter than one sequence is refused") {
  const Scratch folder;
  require_refused(1, corpus(folder, "short", 20), {"short"}, folder);
}

TEST_CASE("a full disk for the run folder ends the run with the folder's name") {
  const Scratch folder;
  // A tmpfs needs root; without it there is no small disk to fill.
  const Outcome mounted = shell("mkdir small && mount -t tmpfs -o size=64k tmpfs small", folder);
  if (mounted.code != 0) {
    WARN("skipped: cannot mount a tmpfs");
    return;
  }
  const Outcome outcome = shell("head -c 100000 /dev/zero >small/filler; \"$RR\" " + recipe("td") +
                                    " logger.run_dir=small/run; code=$?; "
                                    "umount small; exit $code",
                                folder);
  INFO(outcome.err);
  REQUIRE((outcome.code == 1 || outcome.code == 2));
  REQUIRE(outcome.err.find("small/run") != std::string::npos);
}

}  // namespace rr::test
