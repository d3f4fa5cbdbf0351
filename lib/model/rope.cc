// Frequencies base^(-2i / rotary), Llama 3 scaling after its reference implementation.
#include "model/rope.h"

#include <cmath>
#include <numbers>

namespace rr::model {

namespace {

// Long wavelengths are stretched by `factor`, short ones stay, between them a straight line.
float scaled(float frequency, const plan::RopeScaling& scaling) {
  if (scaling.factor == 1.0) return frequency;
  const auto length = static_cast<double>(scaling.original_max_positions);
  const double wavelength = 2.0 * std::numbers::pi / static_cast<double>(frequency);
  if (wavelength < length / scaling.high_frequency_factor) return frequency;
  const auto slow = static_cast<float>(static_cast<double>(frequency) / scaling.factor);
  if (wavelength > length / scaling.low_frequency_factor) return slow;
  const double smooth = (length / wavelength - scaling.low_frequency_factor) /
                        (scaling.high_frequency_factor - scaling.low_frequency_factor);
  return static_cast<float>((1.0 - smooth) * slow + smooth * frequency);
}

}  // namespace

RopeTables make_rope_tables(const plan::ModelSpec& model, std::int64_t positions) {
  RopeTables tables;
  if (model.position != plan::Position::rope) return tables;
  const auto dimensions = static_cast<double>(model.head_dim) * model.rotary_percent;
  tables.rotary = static_cast<std::int64_t>(dimensions) / 2 * 2;
  tables.positions = positions;
  const std::int64_t half = tables.rotary / 2;
  std::vector<float> frequencies;
  for (std::int64_t i = 0; i < half; ++i) {
    const double exponent = 2.0 * static_cast<double>(i) / static_cast<double>(tables.rotary);
    frequencies.push_back(scaled(static_cast<float>(1.0 / std::pow(model.rotary_base, exponent)),
                                 model.rope_scaling));
  }
  for (std::int64_t position = 0; position < positions; ++position) {
    for (const float frequency : frequencies) {
      const float angle = static_cast<float>(position) * frequency;
      tables.cosines.push_back(static_cast<float>(std::cos(static_cast<double>(angle))));
      tables.sines.push_back(static_cast<float>(std::sin(static_cast<double>(angle))));
    }
  }
  return tables;
}

}  // namespace rr::model
