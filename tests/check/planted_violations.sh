#!/usr/bin/env bash
# Shows that scripts/check passes a clean tree and names every kind of planted violation.
# Usage: planted_violations.sh SOURCE_FOLDER
set -uo pipefail
source_folder="$1"
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
cd "$tree" || exit 1
failures=0
if ! command -v clang-format >/dev/null; then
  echo "skipped: clang-format is not installed (scripts/setup --check installs it)"
  exit 4
fi

# A small clean tree with one file of each kind.
clean_tree() {
  rm -rf "${tree:?}"/* "$tree/.clang-format"
  cp "$source_folder/.clang-format" .
  mkdir -p app lib/base lib/recipe lib/plan lib/model lib/optim lib/checkpoint tests/base recipes \
    configs/models scripts
  printf '// Base.\n#pragma once\n' | tee lib/base/base.h lib/base/log.h >lib/base/hidden.h
  printf '// Recipe.\n#pragma once\n#include "base/base.h"\n' >lib/recipe/recipe.h
  printf '// Plan.\n#pragma once\n#include "recipe/recipe.h"\n' >lib/plan/plan.h
  printf '// Model.\n#pragma once\n#include <ATen/core/Tensor.h>\n' >lib/model/model.h
  printf '// Layers.\n#include <torch/torch.h>\n\n#include <vector>\n' >lib/model/layers.cc
  printf '// JSON.\n#include <nlohmann/json.hpp>\n' >lib/checkpoint/json.cc
  printf '// Base test.\n#include "base/hidden.h"\n' >tests/base/base_test.cc
  printf '// Program.\n#include <nlohmann/json.hpp>\n\n#include "cli.h"\nconst char* options[] = {"--recipe", "--dry-run"};\n' >app/main.cc
  printf '// Arguments.\n' >app/cli.h
  printf '# A tiny run.\ntrain: {}\n' >recipes/tiny.yaml
  printf '#!/usr/bin/env bash\n# Builds.\ntrue\n' >scripts/build
  printf '# Build.\nrr_room(base)\nrr_room(recipe base)\nrr_room(plan base recipe)\n' >CMakeLists.txt
  printf 'Run `scripts/build`, see `lib/base/` and `recipes/*.yaml`; plan with\n`run_recipe --recipe tiny_config --dry-run`, or `--recipe NAME`.\n' >README.md
}

# expect CLAIM MESSAGE: the tree as it stands is refused with MESSAGE; then it is made clean again.
expect() {
  local output status
  output=$("$source_folder/scripts/check" "$tree" 2>&1)
  status=$?
  if [ "$status" != 1 ] || ! grep -qF -- "$2" <<<"$output"; then
    printf 'FAILED: %s: status %s, no "%s" in:\n%s\n' "$1" "$status" "$2" "$output"
    failures=$((failures + 1))
  fi
  clean_tree
}

clean_tree
if ! "$source_folder/scripts/check" "$tree"; then
  echo "FAILED: the clean tree is refused"
  exit 1
fi

printf 'int  f( );\n' >>lib/base/base.h
expect "unformatted code" "lib/base/base.h:3: not formatted"

# Include rules.
printf '#include "plan/plan.h"\n' >>lib/recipe/recipe.h
expect "a room that includes one above it" 'lib/recipe/recipe.h:4: recipe must not include "plan/plan.h"'
printf '#include "base/hidden.h"\n' >lib/plan/use.cc && sed -i '1i // Use.' lib/plan/use.cc
expect "another room's private header" 'lib/plan/use.cc:2: "base/hidden.h" is private to base'
printf '// Use.\n#include "optim/optim.h"\n' >lib/model/use.cc
expect "model seeing optim" 'lib/model/use.cc:2: model must not include "optim/optim.h"'
printf '// Use.\n#include "base.h"\n' >lib/base/use.cc
expect "an include without its room" 'lib/base/use.cc:2: include "base.h" names no room'
printf '// Use.\n#include <torch/torch.h>\n' >lib/optim/use.cc
expect "torch outside model and train" 'lib/optim/use.cc:2: <torch/torch.h> is not allowed here'
printf '// Use.\n#include <ATen/ATen.h>\n' >lib/model/use.cu
expect "torch in a .cu" 'lib/model/use.cu:2: <ATen/ATen.h> is not allowed here'
printf '#include <ATen/ATen.h>\n' >>lib/model/model.h
expect "more torch in the door of model" 'lib/model/model.h:4: <ATen/ATen.h> is not allowed here'
printf '// Use.\n#include <nlohmann/json.hpp>\n' >lib/checkpoint/use.h
expect "JSON in a header" 'lib/checkpoint/use.h:2: <nlohmann/json.hpp> is not allowed here'
printf '// Use.\n#include <yaml-cpp/yaml.h>\n' >lib/plan/use.cc
expect "YAML outside recipe" 'lib/plan/use.cc:2: <yaml-cpp/yaml.h> is not allowed here'
printf '// Use.\n#include <boost/any.hpp>\n' >lib/base/use.cc
expect "an unknown library" 'lib/base/use.cc:2: <boost/any.hpp> is unknown'
printf '// Use.\n#include <zlib.h>\n' >lib/base/use.cc
expect "an unknown C library" 'lib/base/use.cc:2: <zlib.h> is unknown'
mkdir lib/attic && printf '// Attic.\n' >lib/attic/attic.h
expect "a room nobody planned" 'lib/attic/attic.h:1: room attic is not in the table'
sed -i 's/rr_room(recipe base)/rr_room(recipe base plan)/' CMakeLists.txt
expect "a CMake target that uses more" 'CMakeLists.txt:3: rr_room(recipe base plan) is not the row'

# Lengths, text, shell.
body() { for ((i = 0; i < $1; i++)); do printf '  g();\n'; done; }
{ printf '// Long.\nvoid g();\nstruct S {\n  void f() {\n' && body 99 | sed 's/^/  /' && printf '  }\n};\n'; } >lib/base/long.cc
expect "a member function of 101 lines" 'lib/base/long.cc:4: a function of 101 lines'
{ printf '// Long.\nvoid g();\nstatic void f(int aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa,\n              int bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb) {\n' && body 120 && printf '}\n'; } >lib/base/long.cc
expect "a function with a long head" 'lib/base/long.cc:4: a function of 122 lines'
{ printf '// Long.\nvoid g();\nnamespace {\nint x = 0;\nvoid f() {\n' && body 98 && printf '}\n}  // namespace\n'; } >lib/base/long.cc
"$source_folder/scripts/check" "$tree" >/dev/null 2>warnings || { echo "FAILED: 100 lines are refused" && failures=$((failures + 1)); }
grep -q 'warning: lib/base/long.cc:5: a function of 100 lines' warnings || { echo "FAILED: no warning" && failures=$((failures + 1)); }
rm -f warnings
clean_tree
{ printf '// Long.\nvoid f() {\n  static const int table[] = {\n' && for ((i = 100; i < 250; i++)); do printf '      %d,  //\n' "$i"; done &&
  printf '  };\n}\n'; } >lib/base/long.cc
"$source_folder/scripts/check" "$tree" >/dev/null || { echo "FAILED: a long table is refused" && failures=$((failures + 1)); }
{ printf '// Long.\nvoid g();\nvoid f() {\n  static const int table[] = {\n      1,  //\n      2,  //\n  };\n' && body 99 && printf '}\n'; } >lib/base/long.cc
expect "a long function behind a table" 'lib/base/long.cc:3: a function of 103 lines'
{ printf '// Long.\n' && for ((i = 0; i < 500; i++)); do echo "// Line."; done; } >lib/base/long.cc
expect "a file of 501 lines" 'lib/base/long.cc:501: the file has more than 500 lines'
printf '// A \xe2\x80\xa6 dot.\n' >>lib/base/base.h
expect "a character that is not ASCII" 'lib/base/base.h:3: not ASCII'
printf '#pragma once\n' >lib/base/log.h
expect "a header without its first line" 'lib/base/log.h:1: the first line does not say'
printf 'train: {}\n' >recipes/tiny.yaml
expect "a recipe without its first line" 'recipes/tiny.yaml:1: the first line does not say'
printf '#!/usr/bin/env bash\nset -e\n' >scripts/build
expect "a script that does not say what it is for" 'scripts/build:2: the line after #!'
printf 'if true; then\n' >>scripts/build
expect "a script with a syntax error" 'scripts/build:5: syntax error'

# README.
printf 'See `lib/base/gone.h`.\n' >>README.md
expect "a README path that is gone" 'README.md:3: lib/base/gone.h does not exist'
printf 'Run `scripts/launch --now`.\n' >>README.md
expect "a README command that is gone" 'README.md:3: scripts/launch does not exist'
printf 'See `configs/*.toml`.\n' >>README.md
expect "a README pattern that matches nothing" 'README.md:3: configs/*.toml does not exist'
printf '    run_recipe --recipe huge\n' >>README.md
expect "a README recipe that is gone" 'README.md:3: there is no recipe huge'
printf '    run_recipe --recipe tiny --wet-run\n' >>README.md
expect "a README option that is gone" 'README.md:3: the program has no option --wet-run'

if [ "$failures" != 0 ]; then
  echo "$failures planted violations were not caught"
  exit 1
fi
echo "every planted violation was caught"
