// detector.js: an object detector (YOLO): five scales, a path up by Resize and one down, anchors from the sizes of the maps.
import { Tensor } from 'dgx-spark'
import { int64, Layers } from './layers.js'

/**
 * `image` [n, 3, h, w], sizes in multiples of 32, to `boxes` [n, 4, a] in pixels and `scores` [n, classes, a].
 * @param {number} seed @param {{ width: number, classes: number }} sizes width: channels of the first layer
 */
export function detector(seed, { width, classes }) {
  const net = new Detector('detector', seed)
  const [c1, c2, c3, c4, c5] = [width, 2 * width, 4 * width, 8 * width, 16 * width]
  const image = net.input('image', ['n', 3, 'h', 'w'])
  const quarter = net.stage(net.unit(image, 3, c1, 2), c1, c2)
  const p3 = net.stage(quarter, c2, c3)
  const p4 = net.stage(p3, c3, c4)
  const p5 = net.pyramid(net.stage(p4, c4, c5), c5)
  const up4 = net.mix(net.add('Concat', [net.double(p5), p4], { axis: 1 }), c5 + c4, c4)
  const out3 = net.mix(net.add('Concat', [net.double(up4), p3], { axis: 1 }), c4 + c3, c3)
  const down4 = net.add('Concat', [net.unit(out3, c3, c3, 2), up4], { axis: 1 })
  const out4 = net.mix(down4, c3 + c4, c4)
  const down5 = net.add('Concat', [net.unit(out4, c4, c4, 2), p5], { axis: 1 })
  const out5 = net.mix(down5, c4 + c5, c5)
  const heads = [
    net.head(out3, c3, classes, 8),
    net.head(out4, c4, classes, 16),
    net.head(out5, c5, classes, 32),
  ]
  const boxes = net.add(
    'Concat',
    heads.map(head => head.boxes),
    { axis: 2 },
  )
  const scores = net.add(
    'Concat',
    heads.map(head => head.scores),
    { axis: 2 },
  )
  return net.build({ boxes, scores: net.add('Sigmoid', [scores]) })
}

class Detector extends Layers {
  /** A convolution with SiLU. @param {string} x @param {number} from @param {number} to @param {number} [stride] @param {number} [kernel] */
  unit(x, from, to, stride = 1, kernel = 3) {
    return this.silu(this.conv(x, from, to, { kernel: [kernel, kernel], strides: [stride, stride] }))
  }

  /** Halves the sizes. @param {string} x @param {number} from @param {number} to */
  stage(x, from, to) {
    return this.mix(this.unit(x, from, to, 2), to, to)
  }

  /** Splits the channels, of which one half goes through a residual pair of layers. @param {string} x @param {number} from @param {number} to */
  mix(x, from, to) {
    const half = to / 2
    const [kept = '', passed = ''] = this.graph.addAll('Split', [this.unit(x, from, to, 1, 1)], 2, {
      axis: 1,
      num_outputs: 2,
    })
    const residual = this.unit(this.unit(passed, half, half), half, half)
    const parts = [kept, passed, this.add('Add', [passed, residual])]
    return this.unit(this.add('Concat', parts, { axis: 1 }), 3 * half, to, 1, 1)
  }

  /** Maxima over windows of three sizes. @param {string} x @param {number} width */
  pyramid(x, width) {
    const maxima = [this.unit(x, width, width / 2, 1, 1)]
    while (maxima.length < 4) {
      const attributes = { kernel_shape: [5, 5], pads: [2, 2, 2, 2] }
      maxima.push(this.add('MaxPool', [maxima.at(-1) ?? ''], attributes))
    }
    return this.unit(this.add('Concat', maxima, { axis: 1 }), 2 * width, width, 1, 1)
  }

  /** @param {string} x */
  double(x) {
    const scales = Tensor.from([1, 1, 2, 2])
    const nearest = { mode: 'nearest', coordinate_transformation_mode: 'asymmetric', nearest_mode: 'floor' }
    return this.add('Resize', [x, '', scales], nearest)
  }

  /** Boxes and logits of a map. @param {string} x @param {number} from @param {number} classes @param {number} stride in pixels */
  head(x, from, classes, stride) {
    const sides = this.conv(this.unit(x, from, from), from, 4, { kernel: [1, 1] })
    const logits = this.conv(this.unit(x, from, from), from, classes, { kernel: [1, 1] })
    const n = this.size(x, 0)
    const [least = '', most = ''] = this.graph.addAll('Split', [this.reshape(sides, [n, 4, -1])], 2, {
      axis: 1,
      num_outputs: 2,
    })
    const centers = this.centers(x)
    const corners = [this.add('Sub', [centers, least]), this.add('Add', [centers, most])]
    const boxes = this.add('Mul', [this.add('Concat', corners, { axis: 1 }), stride])
    return { boxes, scores: this.reshape(logits, [n, classes, -1]) }
  }

  /** Centers of the cells of a map, [1, 2, h · w]. @param {string} x */
  centers(x) {
    const [h, w] = [this.size(x, 2), this.size(x, 3)]
    const sizes = this.shape([h, w])
    const axis = (/** @type {string} */ size, /** @type {number[]} */ shape) => {
      const end = this.add('Cast', [size], { to: 1 }) // f32
      const index = this.add('Range', [0, end, 1])
      return this.add('Expand', [this.add('Reshape', [index, int64(shape)]), sizes])
    }
    const [columns, rows] = [axis(w, [1, -1]), axis(h, [-1, 1])]
    const both = [columns, rows].map(part => this.add('Unsqueeze', [part, int64([0])]))
    const centers = this.add('Add', [this.add('Concat', both, { axis: 0 }), 0.5])
    return this.add('Reshape', [centers, int64([1, 2, -1])])
  }
}
