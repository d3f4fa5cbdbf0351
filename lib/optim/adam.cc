// The door of the AdamW kernels: the numbers of a step, and which instruction set runs it.
#include <cmath>

#include "optim/adam_kernel.h"

namespace rr::optim {

namespace {

// By squaring: the same bits with every libm, and a function of `exponent` alone.
double power(double base, std::int64_t exponent) {
  double result = 1.0;
  for (; exponent > 0; exponent >>= 1, base *= base) {
    if (exponent & 1) result *= base;
  }
  return result;
}

Isa best_isa() {
  if (isa_available(Isa::avx512)) return Isa::avx512;
  if (isa_available(Isa::avx2)) return Isa::avx2;
  return Isa::generic;
}

}  // namespace

AdamArguments adam_arguments(const plan::OptimizerPlan& plan, const StepInput& input,
                             double clip_coefficient, bool decay) {
  RR_CHECK(input.step >= 1, "Adam counts its steps from 1");
  const double bias1 = 1.0 - power(plan.beta1, input.step);
  const double bias2 = 1.0 - power(plan.beta2, input.step);
  AdamArguments arguments;
  arguments.decay_factor =
      decay ? static_cast<float>(1.0 - input.learning_rate * input.weight_decay) : 1.0F;
  arguments.one_minus_beta1 = static_cast<float>(1.0 - plan.beta1);
  arguments.beta2 = static_cast<float>(plan.beta2);
  arguments.one_minus_beta2 = static_cast<float>(1.0 - plan.beta2);
  arguments.step_size = static_cast<float>(input.learning_rate / bias1);
  arguments.bias2_sqrt = static_cast<float>(std::sqrt(bias2));
  arguments.epsilon = static_cast<float>(plan.epsilon);
  arguments.gradient_scale = static_cast<float>(clip_coefficient);
  return arguments;
}

bool isa_available(Isa isa) {
  switch (isa) {
    case Isa::best:
    case Isa::generic:
      return true;
    case Isa::avx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    case Isa::avx512:
      return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  }
  return false;
}

void adam_step(const AdamArguments& arguments, std::int64_t n, float* p, float* m, float* v,
               const float* gradient, void* weight_out, DType weight_dtype, Isa isa) {
  RR_CHECK(weight_dtype == DType::f32 || weight_dtype == DType::bf16, name_of(weight_dtype));
  AdamArrays arrays{n, p, m, v, gradient, weight_out, WeightOut::bf16};
  if (weight_dtype == DType::f32) arrays.kind = WeightOut::f32;
  if (weight_out == nullptr || weight_out == p) arrays.kind = WeightOut::none;
  static const Isa best = best_isa();
  switch (isa == Isa::best ? best : isa) {
    case Isa::best:
    case Isa::generic:
      return adam_generic(arguments, arrays);
    case Isa::avx2:
      return adam_avx2(arguments, arrays);
    case Isa::avx512:
      return adam_avx512(arguments, arrays);
  }
}

}  // namespace rr::optim
