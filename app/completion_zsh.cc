// The completion script of zsh, for a file _run_recipe in $fpath or for source after compinit.
#include <fmt/format.h>

#include "app/completion.h"
#include "app/options.h"
#include "base/text.h"

namespace rr::app {
namespace {

constexpr const char* kHead = R"(#compdef run_recipe
# zsh completion for run_recipe
# Load with: source <(run_recipe completion zsh)
_run_recipe() {
  local previous="${words[CURRENT-1]}" behind_equals=""
  local -a found
  if [[ $PREFIX == *=* ]]; then
    previous="${PREFIX%%=*}" behind_equals=1
    compset -P 1 '*='
  fi
)";

constexpr const char* kTail = R"(  if [[ -n $behind_equals || -n $kind ]]; then
    return 1
  fi
  if [[ ${words[2]} == data && CURRENT -gt 2 ]]; then
    found=('--input:text files, a document each' '--output:path of .bin and .idx')
    [[ $PREFIX == -* ]] && { _describe -o option found; return }
    (( CURRENT > 3 )) && { _files; return }
  fi
  if [[ $PREFIX == -* ]]; then
    _describe -o option options
    return
  fi
  (( CURRENT == 2 )) && _describe -t commands command commands
  compset -P '++' || compset -P '[+~]'
  _describe -t keys key keys -S '='
}
if [[ $funcstack[1] == _run_recipe ]]; then
  _run_recipe "$@"
else
  compdef _run_recipe run_recipe
fi
)";

// In single quotes, "word:meaning" as _describe reads it.
std::string item(const std::string& text, const std::string& meaning) {
  std::string out = "'";
  for (const char c : meaning.empty() ? text : text + ":" + meaning)
    out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string items(const std::vector<Word>& words) {
  std::vector<std::string> all;
  for (const Word& word : words) all.push_back(item(word.text, word.meaning));
  return join(all, " ");
}

std::string row(const std::vector<std::string>& after, const std::string& body) {
  return fmt::format("    ({}) {} ;;\n", join(after, "|"), body);
}

}  // namespace

std::string zsh_script(const Words& words) {
  std::vector<Word> option_words, command_words;
  for (const Option& option : options())
    for (const std::string& spelling : spellings(option))
      option_words.push_back({spelling, option.help});
  for (const Command& command : commands()) command_words.push_back({command.name, command.help});
  std::string text = kHead;
  text += fmt::format("  local -a options=({})\n", items(option_words));
  text += fmt::format("  local -a commands=({})\n", items(command_words));
  text += fmt::format("  local -a keys=({})\n", items(words.keys));
  text += "  local kind=\"\"\n  case $previous in\n" + row(value_options(), "kind=value") +
          "  esac\n  case $previous in\n" + row(folder_options(), "_files -/; return") +
          row(file_options(), "kind=file") + "  esac\n";
  text += "  case $previous in\n";
  for (const Choice& choice : choices(words))
    if (!words.values.contains(choice.after.front()))
      text += row(choice.after, fmt::format("found=({}); _describe -t values value found; "
                                            "[[ $kind == file ]] && _files; return",
                                            items(choice.words)));
  text += "  esac\n  [[ $kind == file ]] && { _files; return }\n";
  text +=
      "  if [[ -n $behind_equals ]]; then\n  previous=\"${previous#+}\"\n"
      "  case ${previous#+} in\n";
  for (const Choice& choice : choices(words))
    if (words.values.contains(choice.after.front()))
      text += row(choice.after, fmt::format("found=({}); _describe -t values value found; return",
                                            items(choice.words)));
  return text + "  esac\n  fi\n" + kTail;
}

}  // namespace rr::app
