// Time and memory of planning: plan_bench [PROGRAM] loads, plans and prints large recipes, each in
// a process of its own, and times PROGRAM's dry run of a 30B recipe. No test.
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string>

#include "plan/planner.h"

namespace {

using namespace rr;
using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

void plan_recipe(const std::string& name) {
  const auto start = Clock::now();
  recipe::Request request;
  request.recipe = name;
  request.search_paths = recipe::default_search_paths();
  const recipe::Recipe recipe = recipe::load(request);
  if (recipe.has_errors()) {
    fmt::print("{}: {}\n", name, to_string(recipe.problems.front()));
    return;
  }
  const double loaded = ms_since(start);
  const recipe::Machine machine = recipe::load_machine("h100_sxm", request.search_paths);
  const plan::Plan made = plan::make_plan(recipe, machine);
  const double planned = ms_since(start);
  const std::size_t characters = plan::to_text(made).size() + plan::to_json(made).size();
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  fmt::print(
      "{:<24} {:>6} ranks: load {:>4.0f} ms, plan {:>4.0f} ms, print {:>4.0f} ms ({} kB), "
      "peak {:.0f} MB\n",
      name, recipe.world_size, loaded, planned - loaded, ms_since(start) - planned,
      characters / 1000, static_cast<double>(usage.ru_maxrss) / 1000);
}

// Runs `work` in a process of its own, so that the peak is its own.
template <class Work>
void apart(const Work& work) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    work();
    std::fflush(stdout);
    _exit(0);
  }
  waitpid(child, nullptr, 0);
}

// Start to finish, best of five.
void dry_run(const char* program) {
  double best = 1e9;
  rusage usage{};
  for (int i = 0; i < 5; ++i) {
    const auto start = Clock::now();
    const pid_t child = fork();
    if (child == 0) {
      if (!std::freopen("/dev/null", "w", stdout) || !std::freopen("/dev/null", "w", stderr))
        _exit(1);
      execl(program, program, "--recipe", "qwen3_30b_a3b_pretrain", "--dry-run", nullptr);
      _exit(127);
    }
    int status = 0;
    wait4(child, &status, 0, &usage);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
      fmt::print("{} failed\n", program);
      return;
    }
    best = std::min(best, ms_since(start));
  }
  fmt::print("{} --recipe qwen3_30b_a3b_pretrain --dry-run: {:.0f} ms, peak {:.0f} MB\n", program,
             best, static_cast<double>(usage.ru_maxrss) / 1000);
}

}  // namespace

int main(int argc, char** argv) {
  for (const char* name : {"qwen3_30b_a3b_pretrain", "llama3_405b_pretrain", "moe_1t_pretrain"}) {
    apart([name] { plan_recipe(name); });
  }
  if (argc > 1) dry_run(argv[1]);
}
