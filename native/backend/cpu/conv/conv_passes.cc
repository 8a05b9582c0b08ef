// conv_passes.cc: convolutions and weight gradients as implicit im2col, or as loops for few filters.
#include "backend/cpu/conv/conv_passes.h"

#include <algorithm>

#include "backend/cpu/gemm/activation.h"
#include "backend/cpu/gemm/product.h"
#include "backend/cpu/grain.h"
#include "backend/cpu/parallel_tasks.h"
#include "backend/cpu/simd/cpu_kernels.h"
#include "core/thread_pool.h"

namespace spark::cpu {
namespace {

constexpr int64_t kPositions = 512;       // fill a product; images that are smaller share one
constexpr int64_t kDirectLines = 3;       // up to so many lines of a group do without a product
constexpr int64_t kGrainTerms = 1 << 17;  // products worth waking a thread for
constexpr int64_t kGrainSums = 1 << 14;   // sums of tasks that a thread adds up at a time
constexpr int64_t kManyTerms = 1024;
constexpr int64_t kChunkTerms = 1 << 12;  // positions whose products with the gradient are one sum

// Some images of one group.
struct Task {
  int64_t first, images, group;
};

class Convolution {
 public:
  // Its tasks have as many images as `positions` each make up `wanted`, at least one.
  Convolution(const ConvSource& source, int64_t positions, int64_t wanted, bool padded)
      : source_(source), padded_(padded || source.compact || !source.input->plain()) {
    images_ = std::clamp<int64_t>(wanted / std::max<int64_t>(positions, 1), 1, source.batch);
    plane_ = padded_ ? source.input->plane() : source.pixels;
    floats_ = padded_ ? padded_floats(padded_floats(plane_, source.channels), images_) + kPaddedSlack : 0;
  }

  int64_t images() const { return images_; }
  int64_t plane() const { return plane_; }
  bool padded() const { return padded_; }
  int64_t tasks() const { return (source_.batch + images_ - 1) / images_ * source_.groups; }

  Task task(int64_t index) const {
    const int64_t first = index / source_.groups * images_;
    return {first, std::min(images_, source_.batch - first), index % source_.groups};
  }

  // The images of a task as they are read: in `workspace`, or where they are.
  const float* pad(const Task& task, float* workspace, bool spread) const {
    const int64_t stride = source_.groups * source_.channels;
    const int64_t first = task.first * stride + task.group * source_.channels;
    if (!padded_) return source_.data + first * plane_;
    const auto fill = [&](int64_t begin, int64_t end) {
      for (int64_t at = begin; at < end; ++at) {
        const int64_t channel = task.group * source_.channels + at % source_.channels;
        const int64_t image = (task.first + at / source_.channels) * stride * source_.pixels;
        fill_plane(source_.data + image, channel, workspace + at * plane_);
      }
    };
    const int64_t planes = task.images * source_.channels;
    if (spread) {
      parallel_for(planes, grain_for(plane_, 1 << 14), fill);
    } else {
      fill(0, planes);
    }
    std::fill_n(workspace + planes * plane_, kPaddedSlack, 0.0f);
    return workspace;
  }

  // Elements between two images of what pad() returns.
  int64_t image_pitch() const { return (padded_ ? 1 : source_.groups) * source_.channels * plane_; }

  // body(task, workspace, alone) for each task of so many products: spread over threads, or one after the
  // other where the body is to spread itself or threads are not worth it.
  template <typename Body>
  void for_each_task(int64_t terms, const Body& body) const {
    const int64_t count = tasks();
    const bool small = count * terms < kGrainTerms;
    if (small || count < 2 * thread_count()) {
      const Scratch workspace(floats_);
      for (int64_t index = 0; index < count; ++index) body(task(index), workspace.data(), small);
    } else {
      parallel_tasks(count, floats_,
                     [&](int64_t index, float* workspace) { body(task(index), workspace, true); });
    }
  }

 private:
  void fill_plane(const float* image, int64_t channel, float* plane) const {
    if (!source_.compact) return source_.input->fill(image + channel * source_.pixels, plane);
    const int64_t channels = source_.groups * source_.channels;
    float values[kMostCompactPositions];
    for (int64_t p = 0; p < source_.pixels; ++p) values[p] = image[p * channels + channel];
    source_.input->fill(values, plane);
  }

  const ConvSource& source_;
  bool padded_;
  int64_t images_, plane_, floats_;
};

// The offsets of all rows: of the taps in each channel.
std::vector<int64_t> row_offsets(const std::vector<int64_t>& taps, int64_t channels, int64_t plane) {
  std::vector<int64_t> rows;
  rows.reserve(channels * taps.size());
  for (int64_t c = 0; c < channels; ++c) {
    for (const int64_t tap : taps) rows.push_back(c * plane + tap);
  }
  return rows;
}

// Rows [first, first + count) of a weight; all of one that is packed.
Weight rows_from(Weight weight, int64_t first, int64_t count) {
  if (first == 0 && count == weight.rows) return weight;
  const int64_t elements = first * weight.cols;
  const auto* bytes = static_cast<const char*>(weight.data);
  switch (weight.dtype) {
    case DType::kF32:
      weight.data = bytes + elements * 4;
      break;
    case DType::kF16:
    case DType::kBF16:
      weight.data = bytes + elements * 2;
      break;
    case DType::kNVFP4:
      weight.data = bytes + elements / 2;
      weight.block_scale += elements / 16;
      break;
    default:
      weight.data = bytes + elements;
      if (weight.row_scale) weight.row_scale += first;
  }
  weight.rows = count;
  return weight;
}

Patches patches_of(const Convolution& convolution, const PaddedInput& input, const float* data,
                   const std::vector<int64_t>& rows, const int64_t (&size)[3], int64_t images) {
  Patches patches = {data,
                     rows.data(),
                     {images, size[0], size[1], size[2]},
                     {convolution.image_pitch(), input.pitch(0), input.pitch(1)},
                     convolution.padded()};
  for (int axis = 2; axis > 0 && patches.pitch[axis] == patches.size[3]; --axis) {  // no gaps: one line
    patches.size[3] *= patches.size[axis];
    patches.size[axis] = 1;
  }
  return patches;
}

// Splits a run of positions of several images.
template <typename Store>
void split(int64_t first, int64_t positions, int64_t col, int64_t count, const float* sums,
           const Store& store) {
  while (count > 0) {
    const int64_t at = col % positions, run = std::min(count, positions - at);
    store(first + col / positions, at, run, sums);
    col += run;
    count -= run;
    sums += run;
  }
}

// Whether few positions are better the left side of the product, whose right side is cut into vectors. Both
// sides are then packed across, which costs an eighth. A single vector of positions leaves half of a block of
// sums empty, which costs more where sums are long.
bool positions_left(int64_t lines, int64_t positions, int64_t depth) {
  const auto rounded = [](int64_t count) { return (count + kVector - 1) / kVector * kVector; };
  if (positions <= kVector && depth > lines) return true;
  return positions <= kTile && 8 * positions * rounded(lines) < 7 * lines * rounded(positions);
}

// y of the lines of a task from its first image on.
Epilogue epilogue_of(const ConvPart& part, const Task& task, int64_t lines, int64_t positions) {
  Epilogue to = part.epilogue;
  to.stride = part.compact ? part.coefficients.rows : positions;
  to.bias_of_columns = part.compact;
  const int64_t line = task.group * lines;
  to = part.compact ? epilogue_at(to, 0, line) : epilogue_at(to, line, 0);
  const int64_t image = task.first * part.coefficients.rows * positions;
  if (to.residual) to.residual += image;
  to.y += image;
  return to;
}

void multiply(const Convolution& convolution, const ConvSource& source, const ConvPart& part,
              const std::vector<int64_t>& rows, const Task& task, const float* data, bool alone) {
  const int64_t lines = part.coefficients.rows / source.groups, positions = numel(part.size);
  const Patches patches = patches_of(convolution, *source.input, data, rows, part.size, task.images);
  const Weight weight = rows_from(part.coefficients, task.group * lines, lines);
  const auto store = [&](int64_t line, int64_t col, int64_t count, const float* sums) {
    split(task.first, positions, col, count, sums,
          [&](int64_t n, int64_t position, int64_t run, const float* values) {
            part.store(n, task.group * lines + line, position, run, values);
          });
  };
  const auto depth = static_cast<int64_t>(rows.size());
  const int64_t columns = task.images * positions;
  const bool left = positions_left(lines, columns, depth);
  const Segment segment = left ? Segment{columns_of(patches), rows_of(weight), depth}
                               : Segment{rows_of(weight), columns_of(patches), depth};
  const int64_t m = left ? columns : lines, n = left ? lines : columns;
  const StoreBy by = left != part.compact ? StoreBy::kColumns : StoreBy::kRows;
  if (part.epilogue.y && (task.images == 1 || part.compact)) {
    const Epilogue to = epilogue_of(part, task, lines, positions);
    (alone ? product_into_here : product_into)(to, m, n, segment, by);
  } else {
    (alone ? product_here : product)(m, n, {segment}, store, by);
  }
}

// The lines of a run with the bias in their sums become what `to`, which is that of their plane, says.
void store_run(const PositionRun& run, int64_t pitch, int64_t width, float* sums, Epilogue to) {
  if (to.residual) {
    to = epilogue_at(to, 0, run.position);
    to.bias = nullptr;
    to.stride = width;
    return apply_epilogue(sums, pitch, run.lines, run.width, to);
  }
  if (!is_bounds(to.activation)) activate(to.activation, run.count, sums);
  copy_run(run, pitch, sums, to.y);
}

// Positions are taken as they lie in the padded input, those between its lines included, and only the others
// stored.
void loop(const ConvSource& source, const ConvPart& part, const std::vector<int64_t>& rows, const Task& task,
          const float* data) {
  const auto depth = static_cast<int64_t>(rows.size());
  const int64_t lines = part.coefficients.rows / source.groups, pitch = source.input->pitch(1);
  const bool has_epilogue = part.epilogue.y != nullptr;
  const bool is_last = has_epilogue && !part.epilogue.residual;
  const Bounds bounds = bounds_of(is_last ? part.epilogue.activation : Activation::kNone);
  const Epilogue to = has_epilogue ? epilogue_of(part, task, lines, numel(part.size)) : Epilogue{};
  alignas(64) float sums[kRunCount + kPaddedSlack];
  for (int64_t line = 0; line < lines; ++line) {
    const int64_t at = task.group * lines + line;
    const float* coefficients = static_cast<const float*>(part.coefficients.data) + at * depth;
    const float bias = to.bias ? to.bias[line] : 0;
    for_each_run(*source.input, part.size, [&](const PositionRun& run) {
      kernels().conv.correlate(coefficients, data + run.from, rows.data(), depth, run.count, bias, bounds,
                               sums);
      if (has_epilogue) return store_run(run, pitch, part.size[2], sums, epilogue_at(to, line, 0));
      for (int64_t i = 0; i < run.lines; ++i) {
        part.store(task.first, at, run.position + i * part.size[2], run.width, sums + i * pitch);
      }
    });
  }
}

// Gradients of the `lines` of a group: those of line l of image n begin at data[n · pitch + l · numel(size)].
struct LineGradients {
  const float* data;
  int64_t pitch, lines;
};

// As coefficient_gradient(), of a task: to[l · rows.size() + row].
void loop_gradient(const Convolution& convolution, const PaddedInput& input, const Task& task,
                   const std::vector<int64_t>& rows, const int64_t (&size)[3], const float* data,
                   const LineGradients& gradients, float* to) {
  const auto& [depths, height, width] = size;
  const auto& [gradient, pitch, lines] = gradients;
  const auto depth = static_cast<int64_t>(rows.size());
  std::fill_n(to, lines * depth, 0.0f);
  for (int64_t n = 0; n < task.images; ++n) {
    for (int64_t line = 0; line < lines; ++line) {
      for (int64_t z = 0; z < depths; ++z) {
        kernels().conv.dots(gradient + n * pitch + (line * depths + z) * height * width, height, width,
                            data + n * convolution.image_pitch() + z * input.pitch(0), input.pitch(1),
                            rows.data(), depth, to + line * depth);
      }
    }
  }
}

}  // namespace

bool loops_over(int64_t groups, int64_t lines) { return groups > 1 && lines <= kDirectLines; }

void convolve(const ConvSource& source, const std::vector<ConvPart>& parts) {
  const int64_t lines = parts[0].coefficients.rows / source.groups;
  const bool direct = loops_over(source.groups, lines);
  const Convolution convolution(source, numel(parts[0].size), direct ? 1 : kPositions, direct);
  std::vector<std::vector<int64_t>> rows;
  for (const ConvPart& part : parts) {
    rows.push_back(row_offsets(part.offsets, source.channels, convolution.plane()));
  }
  const int64_t terms = lines * convolution.images() * numel(parts[0].size) * std::ssize(rows[0]);
  convolution.for_each_task(terms, [&](const Task& task, float* workspace, bool alone) {
    const float* data = convolution.pad(task, workspace, !alone);
    for (size_t i = 0; i < parts.size(); ++i) {
      if (direct) {
        loop(source, parts[i], rows[i], task, data);
      } else {
        multiply(convolution, source, parts[i], rows[i], task, data, alone);
      }
    }
  });
}

void coefficient_gradient(const ConvSource& source, const std::vector<int64_t>& taps,
                          const int64_t (&size)[3], const float* gradient, int64_t lines, float* sums) {
  const int64_t positions = numel(size), groups = source.groups;
  if (source.batch * positions == 0) {
    const int64_t count = groups * lines * source.channels * static_cast<int64_t>(taps.size());
    std::fill_n(sums, count, 0.0f);
    return;
  }
  const bool direct = loops_over(groups, lines);
  const Convolution convolution(source, positions, kChunkTerms, direct);
  const std::vector<int64_t> rows = row_offsets(taps, source.channels, convolution.plane());
  const auto depth = static_cast<int64_t>(rows.size());
  std::vector<int64_t> line_offsets(lines);
  for (int64_t l = 0; l < lines; ++l) line_offsets[l] = l * positions;

  // Each task has a sum of its own; those of a group are added in the order of the images.
  const int64_t count = groups * lines * depth, chunks = convolution.tasks() / groups;
  const std::unique_ptr<float[]> partial(new float[chunks * count]);
  const int64_t products = lines * convolution.images() * positions * depth;
  convolution.for_each_task(products, [&](const Task& task, float* workspace, bool alone) {
    const float* data = convolution.pad(task, workspace, !alone);
    const float* first = gradient + (task.first * groups + task.group) * lines * positions;
    float* to = partial.get() + task.first / convolution.images() * count + task.group * lines * depth;
    if (direct) {
      const LineGradients gradients = {.data = first, .pitch = groups * lines * positions, .lines = lines};
      return loop_gradient(convolution, *source.input, task, rows, size, data, gradients, to);
    }
    const Patches left = patches_of(convolution, *source.input, data, rows, size, task.images);
    const Patches right = {first,
                           line_offsets.data(),
                           {task.images, 1, 1, positions},
                           {groups * lines * positions, 0, 0},
                           false};
    const int64_t terms = task.images * positions;
    const auto multiply = alone ? product_here : product;
    const auto store = [&](int64_t line, int64_t row, int64_t run, const float* values) {
      std::copy_n(values, run, to + line * depth + row);
    };
    if (terms >= kManyTerms) {  // packing the patches across costs more than packing the gradient so
      multiply(depth, lines, {{rows_of(left), rows_of(right), terms}}, store, StoreBy::kColumns);
    } else {
      multiply(lines, depth, {{rows_of(right), rows_of(left), terms}}, store, StoreBy::kRows);
    }
  });
  parallel_for(count, kGrainSums, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; ++at) {
      float sum = partial[at];
      for (int64_t chunk = 1; chunk < chunks; ++chunk) sum += partial[chunk * count + at];
      sums[at] = sum;
    }
  });
}

}  // namespace spark::cpu
