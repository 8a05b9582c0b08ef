// layer_readers.cc: argument readers of pooling, resampling, recurrent layers and dropout masks.
#include <cmath>
#include <vector>

#include "core/error.h"
#include "napi/readers/readers.h"

namespace spark::napi {
namespace {

Function function_of(const Arguments& in) {
  return {unary_fn(in), in.optional_number("alpha", 0), in.optional_number("beta", 0)};
}

constexpr std::initializer_list<const char*> kPool = {"max", "average"};

Windows windows(const Arguments& in) {
  Windows windows{};
  windows.planes = in.size("planes");
  in.axes("image", 0, 1, windows.image);
  in.axes("kernel", 1, 1, windows.kernel);
  in.axes("out", 0, 1, windows.out);
  in.axes("strides", 1, 1, windows.stride);
  in.axes("dilations", 1, 1, windows.dilation);
  in.axes("padsBegin", 0, 0, windows.pad);
  in.axes("padsEnd", 0, 0, windows.pad_end);
  return windows;
}

// Elements of [planes, sizes].
int64_t elements_of(const Windows& windows, const int64_t (&sizes)[3]) {
  return elements(windows.planes, sizes[0], sizes[1], sizes[2]);
}

// Channels of compact images: 0 where images are planes, because they have many positions or always.
int64_t compact_channels(Arguments& in, const PoolArgs& args) {
  if (!in.has("compactChannels")) return 0;
  if (in.placed()) throw Error("ERR_UNSUPPORTED", "compactChannels is for the CPU. Leave it out");
  const int64_t channels = in.size("compactChannels");
  const Windows& windows = args.windows;
  const bool images = channels > 0 && windows.planes % channels == 0;
  if (!images || args.dtype != DType::kF32 || in.has("indices")) {
    throw Error("ERR_SHAPE", "compactChannels needs planes of whole images, in f32 and without indices");
  }
  return is_small_image(windows.image[0] * windows.image[1] * windows.image[2], channels) ? channels : 0;
}

}  // namespace

PoolArgs read_pool(Arguments& in) {
  PoolArgs args{};
  args.fn = in.choice<PoolFn>("fn", kPool);
  args.dtype = in.dtype("dtype");
  args.windows = windows(in);
  args.count_pad = in.flag("countPad");
  args.x = in.input("x", args.dtype, elements_of(args.windows, args.windows.image));
  const int64_t results = elements_of(args.windows, args.windows.out);
  args.y = in.output("y", args.dtype, results);
  args.indices = in.optional_output<int64_t>("indices", results);
  args.channels = compact_channels(in, args);
  return args;
}

PoolBackwardArgs read_pool_backward(Arguments& in) {
  PoolBackwardArgs args{};
  args.fn = in.choice<PoolFn>("fn", kPool);
  args.dtype = in.dtype("dtype");
  args.windows = windows(in);
  args.count_pad = in.flag("countPad");
  const int64_t image = elements_of(args.windows, args.windows.image);
  if (args.fn == PoolFn::kMax) args.x = in.input("x", args.dtype, image);
  args.dy = in.input("dy", args.dtype, elements_of(args.windows, args.windows.out));
  args.dx = in.output("dx", args.dtype, image);
  return args;
}

ResampleArgs read_resample(Arguments& in) {
  ResampleArgs args{};
  args.outer = in.size("outer");
  args.size = in.size("size");
  args.inner = in.size("inner");
  args.out = in.size("out");
  args.count = in.size("count");
  args.x = in.input<float>("x", elements(args.outer, args.size, args.inner));
  args.taps = in.input<int32_t>("taps", elements(args.out, args.count));
  args.weights = in.input<float>("weights", elements(args.out, args.count));
  args.offset = in.optional_input<float>("offset", args.out);
  args.y = in.output<float>("y", elements(args.outer, args.out, args.inner));
  return args;
}

DropoutMaskArgs read_dropout_mask(Arguments& in) {
  DropoutMaskArgs args{};
  args.count = in.size("count");
  const double ratio = in.number("ratio");
  if (!(ratio >= 0 && ratio <= 1))
    throw Error("ERR_ARGUMENT", message("ratio is ", ratio, ", not in [0, 1]"));
  args.threshold = static_cast<uint64_t>(std::floor(ratio * 0x1p32));
  args.keep = ratio < 1 ? static_cast<float>(1 / (1 - ratio)) : 0;
  args.stream = static_cast<uint32_t>(in.size("stream"));
  args.state = static_cast<const uint32_t*>(in.input("state", DType::kU32, 3));
  args.mask = in.output<float>("mask", args.count);
  return args;
}

GridSampleArgs read_grid_sample(Arguments& in) {
  GridSampleArgs args{};
  args.interpolation = in.choice<Interpolation>("interpolation", {"nearest", "linear", "cubic"});
  args.out_of_image = in.choice<OutOfImage>("outOfImage", {"zeros", "border", "reflection"});
  args.align_corners = in.flag("alignCorners");
  args.batch = in.size("batch");
  args.channels = in.size("channels");
  args.points = in.size("points");
  const std::vector<int64_t> image = in.integers("image", 1);
  args.axes = static_cast<int64_t>(image.size());
  if (args.axes != 2 && args.axes != 3) {
    throw Error("ERR_SHAPE", message("image has ", args.axes, " axes, neither 2 nor 3"));
  }
  std::fill(args.image, args.image + 3, 1);
  std::copy(image.begin(), image.end(), args.image + 3 - args.axes);
  const int64_t planes = elements(args.batch, args.channels);
  args.x = in.input<float>("x", elements(planes, elements(args.image[0], args.image[1], args.image[2])));
  args.grid = in.input<float>("grid", elements(args.batch, args.points, args.axes));
  args.y = in.output<float>("y", elements(planes, args.points));
  return args;
}

WarpFramesArgs read_warp_frames(Arguments& in) {
  WarpFramesArgs args{};
  args.frames = in.size("frames");
  args.frame_bytes = in.size("frameBytes");
  uint32_t planes = 0;
  in.each("planes", [&](uint32_t i, const Arguments& plane) {
    planes = i + 1;
    if (i >= 3) return;
    PixelPlane& it = args.planes[i];
    it = {plane.size("height"), plane.size("width"), plane.size("offset"), plane.size("pitch"),
          plane.size("step")};
    const std::string name = message("planes[", i, "]");
    if (it.height == 0 || it.width == 0) throw Error("ERR_SHAPE", message(name, " has no pixels"));
    const int64_t last = elements(it.height - 1, it.pitch) + elements(it.width - 1, it.step);
    if (it.offset >= args.frame_bytes || last >= args.frame_bytes - it.offset) {
      throw Error("ERR_SHAPE",
                  message(name, " ends at byte ", it.offset + last, " of a frame of ", args.frame_bytes));
    }
  });
  if (planes != 3)
    throw Error("ERR_ARGUMENT", message("planes must be an array of three planes, not of ", planes));
  args.out_height = in.size("outHeight");
  args.out_width = in.size("outWidth");
  if (args.out_height % 2 != 0 || args.out_width % 2 != 0) {
    throw Error("ERR_SHAPE", message("outHeight x outWidth is ", args.out_height, " x ", args.out_width,
                                     ", and both must be even"));
  }
  in.numbers("matrix", args.matrix, 9);
  args.x = in.input<uint8_t>("x", elements(args.frames, args.frame_bytes));
  args.y = in.output<uint8_t>("y", elements(args.frames, 6, args.out_height / 2, args.out_width / 2));
  return args;
}

RecurrentArgs read_recurrent(Arguments& in) {
  RecurrentArgs args{};
  args.cell = in.choice<RecurrentCell>("cell", {"rnn", "gru", "lstm"});
  args.directions = in.size("directions");
  if (args.directions != 1 && args.directions != 2) {
    throw Error("ERR_SHAPE", message("directions is ", args.directions, ", neither 1 nor 2"));
  }
  args.steps = in.size("steps");
  args.batch = in.size("batch");
  args.hidden = in.size("hidden");
  args.reverse = in.flag("reverse");
  args.linear_before_reset = in.flag("linearBeforeReset");
  args.couple_gates = in.flag("coupleGates");
  args.clip = in.optional_number("clip", INFINITY);
  const int64_t count = gate_count(args.cell), functions = args.directions * function_count(args.cell);
  const int64_t width = elements(count, args.hidden), state = elements(args.batch, args.hidden);
  int64_t given = 0;
  in.each("functions", [&](uint32_t i, const Arguments& function) {
    if (++given <= functions) args.functions[i] = function_of(function);
  });
  if (given != functions) {
    throw Error("ERR_SHAPE", message("there are ", given, " functions; this layer has ", functions));
  }
  const int64_t samples = elements(args.directions, args.batch), states = elements(args.directions, state);
  args.gates = in.input<float>("gates", elements(args.steps, samples, width));
  args.packed = in.flag("packed");
  const int64_t gates = args.packed ? elements((width + kPanelRows - 1) / kPanelRows, kPanelRows) : width;
  args.recurrence = in.input<float>("recurrence", elements(args.directions, args.hidden, gates));
  args.bias = in.optional_input<float>("bias", elements(args.directions, width));
  args.peepholes = in.optional_input<float>("peepholes", elements(args.directions, 3, args.hidden));
  args.initial_h = in.optional_input<float>("initialH", states);
  args.initial_c = in.optional_input<float>("initialC", states);
  args.lengths = in.optional_input<int32_t>("lengths", args.batch);
  args.y = in.optional_output<float>("y", elements(args.steps, states));
  args.last_h = in.output<float>("lastH", states);
  args.last_c = args.cell == RecurrentCell::kLstm ? in.output<float>("lastC", states) : nullptr;
  args.scratch = in.output<float>("scratch", elements(samples, elements(count + 1, args.hidden)));
  return args;
}

}  // namespace spark::napi
