// The completion script of fish.
#include <fmt/format.h>

#include <algorithm>

#include "app/completion.h"
#include "app/options.h"
#include "base/text.h"

namespace rr::app {
namespace {

constexpr const char* kHead = R"(# fish completion for run_recipe
# Load with: run_recipe completion fish | source
complete -c run_recipe -f
)";

constexpr const char* kWordsHead = R"(function __run_recipe_words
    set -l token (commandline -ct)
    if string match -q -- '*=*' $token
        set -l key (string replace -r '=.*' '' -- $token)
        switch (string replace -r '^\++' '' -- $key)
)";

constexpr const char* kWordsMiddle = R"(        end
        return
    end
    set -l mark (string match -r '^[+~]*' -- $token)
    printf "$mark%s\t%s\n" )";

constexpr const char* kWordsTail = R"(
end
complete -c run_recipe -n 'not __fish_seen_subcommand_from data completion man' -a '(__run_recipe_words)'
)";

std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out + "'";
}

// Word and meaning by turns, the arguments of printf.
std::string pairs(const std::vector<Word>& words, const char* ending = "") {
  std::vector<std::string> all;
  for (const Word& word : words) {
    all.push_back(quoted(word.text + ending));
    all.push_back(quoted(word.meaning));
  }
  return join(all, " ");
}

std::string key_values(const Words& words) {
  std::string text;
  for (const Choice& choice : choices(words)) {
    if (!words.values.contains(choice.after.front())) continue;
    std::vector<std::string> values;
    for (const Word& word : choice.words) values.push_back("$key=" + word.text);
    text += fmt::format("            case {}\n                printf '%s\\n' {}\n",
                        join(choice.after, " "), join(values, " "));
  }
  return text;
}

// "-o tp -l tensor_model_parallel_size -l tensor_parallel_size": fish's names of the spellings.
std::string names(const Option& option) {
  std::string text;
  for (const std::string& spelling : spellings(option)) {
    const bool is_long = spelling.starts_with("--");
    const std::string name = spelling.substr(is_long ? 2 : 1);
    text += fmt::format(" {} {}", is_long ? "-l" : name.size() == 1 ? "-s" : "-o", name);
  }
  return text;
}

bool contains(const std::vector<std::string>& all, const std::string& one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

}  // namespace

std::string fish_script(const Words& words) {
  std::string text = kHead;
  for (const Command& command : commands()) {
    text += fmt::format("complete -c run_recipe -n __fish_use_subcommand -a {} -d {}\n",
                        command.name, quoted(command.help));
    std::string follows = command.words;
    std::replace(follows.begin(), follows.end(), '|', ' ');
    if (!follows.empty())
      text += fmt::format("complete -c run_recipe -n '__fish_seen_subcommand_from {}' -a '{}'\n",
                          command.name, follows);
  }
  for (const char* name : {"input", "output"})
    text += fmt::format(
        "complete -c run_recipe -n '__fish_seen_subcommand_from data' -l {} -r -F\n", name);
  const std::vector<Choice> all = choices(words);
  for (const Option& option : options()) {
    const std::string spelling = spellings(option).front();
    const bool file = contains(file_options(), spelling) || contains(folder_options(), spelling);
    std::string line = "complete -c run_recipe" + names(option);
    if (option.value != Value::none) line += file ? " -r -F" : " -x";
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (!contains(all[i].after, spelling)) continue;
      text += fmt::format("function __run_recipe_choice_{}\n    printf '%s\\t%s\\n' {}\nend\n", i,
                          pairs(all[i].words));
      line += fmt::format(" -a '(__run_recipe_choice_{})'", i);
    }
    text += fmt::format("{} -d {}\n", line, quoted(option.help));
  }
  return text + kWordsHead + key_values(words) + kWordsMiddle + pairs(words.keys, "=") + kWordsTail;
}

}  // namespace rr::app
