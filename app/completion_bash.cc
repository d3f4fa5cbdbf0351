// The completion script of bash. Needs bash 4.4; uses nothing of the bash-completion package.
#include <fmt/format.h>

#include "app/completion.h"
#include "app/options.h"
#include "base/text.h"

namespace rr::app {
namespace {

// "=" splits words for bash, so "a=b" is three of them; COMP_WORDBREAKS without it leaves one.
constexpr const char* kHead = R"(# bash completion for run_recipe
# Load with: source <(run_recipe completion bash)
_run_recipe() {
  local cur="${COMP_WORDS[COMP_CWORD]}" prev="" lead="" behind_equals="" words="" kind=""
  COMPREPLY=()
  ((COMP_CWORD > 0)) && prev="${COMP_WORDS[COMP_CWORD - 1]}"
  if [[ $cur == "=" ]]; then
    cur="" behind_equals=1
  elif [[ $prev == "=" ]]; then
    prev="${COMP_WORDS[COMP_CWORD - 2]}" behind_equals=1
  elif [[ $cur == *=* ]]; then
    prev="${cur%%=*}" lead="${cur%%=*}=" cur="${cur#*=}" behind_equals=1
  fi
  if [[ -n $behind_equals ]]; then
    prev="${prev#+}" prev="${prev#+}"
  fi
)";

constexpr const char* kTail = R"(  if [[ $kind == folder ]]; then
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -d -- "$cur")
    return
  fi
  if [[ -z $kind ]]; then
    [[ -n $behind_equals ]] && return
    if [[ $cur == -* ]]; then
      words="$options"
    else
      # A key is followed by its value: no space.
      local mark="${cur%%[!+~]*}"
      compopt -o nospace 2>/dev/null
      words="$keys"
      ((COMP_CWORD == 1)) && words="$words $commands"
      mapfile -t COMPREPLY < <(compgen -P "$mark" -W "$words" -- "${cur#"$mark"}")
      [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} != *= ]] && compopt +o nospace 2>/dev/null
      return
    fi
  fi
  mapfile -t COMPREPLY < <(compgen -P "$lead" -W "$words" -- "$cur")
  if [[ $kind == *file ]]; then
    compopt -o filenames 2>/dev/null
    local -a files
    mapfile -t files < <(compgen -f -- "$cur")
    COMPREPLY+=("${files[@]}")
  fi
}
complete -F _run_recipe run_recipe
)";

std::string texts(const std::vector<Word>& words, const char* ending = "") {
  std::vector<std::string> all;
  for (const Word& word : words) all.push_back(word.text + ending);
  return join(all, " ");
}

std::string row(const std::vector<std::string>& after, const std::string& body) {
  return fmt::format("    {}) {} ;;\n", join(after, " | "), body);
}

}  // namespace

std::string bash_script(const Words& words) {
  std::vector<std::string> option_words, command_words;
  for (const Option& option : options())
    for (const std::string& spelling : spellings(option)) option_words.push_back(spelling);
  for (const Command& command : commands()) command_words.emplace_back(command.name);
  std::string text = kHead;
  text += fmt::format("  local options='{}'\n", join(option_words, " "));
  text += fmt::format("  local commands='{}'\n", join(command_words, " "));
  text += fmt::format("  local keys='{}'\n", texts(words.keys, "="));
  text +=
      "  if [[ ${COMP_WORDS[1]} == data ]]; then\n    options='--input --output'\n"
      "    [[ $cur != -* ]] && kind=file\n  fi\n";
  // An option without a choice of words takes something that nobody can guess.
  text += "  case \"$prev\" in\n" + row(value_options(), "kind=value") + "  esac\n";
  text += "  case \"$prev\" in\n" + row(folder_options(), "kind=folder") +
          row(file_options(), "kind=file") + "  esac\n";
  text += "  case \"$prev\" in\n";
  for (const Choice& choice : choices(words)) {
    // A key is meant only in front of "=".
    const bool is_key = words.values.contains(choice.after.front());
    const std::string set = fmt::format("words='{}' kind=\"words$kind\"", texts(choice.words));
    text +=
        row(choice.after, is_key ? fmt::format("[[ -n $behind_equals ]] && {{ {}; }}", set) : set);
  }
  return text + "  esac\n" + kTail;
}

}  // namespace rr::app
