// loss.ts: how far the outputs of a driving model are from those of its teacher, as a graph: 0 where they are equal.
import { expectKnownOptions, expectNumber, expectOneOf } from '../../core/checks.js'
import { SparkError } from '../../core/errors.js'
import type { Graph } from '../../graph/graph.js'
import { Tensor } from '../../memory/tensor.js'
import { GraphBuilder } from '../../model/graph-builder.js'
import type { DrivingModel } from '../driving-model.js'
import type { DrivingLossOptions } from './options.js'
import { slicesOf, widthOf } from './sequence.js'

const defaults = {
  target: 'distribution',
  path: 1,
  prob: 0.1,
  lane: 0.5,
  edge: 0.5,
  other: 0.5,
  feature: 0.1,
  temperature: 4,
} as const
type Settings = Required<DrivingLossOptions>
type Weight = 'path' | 'lane' | 'edge' | 'other'

/** Means, logarithms of scales, and for several hypotheses their scores: `scores` of them each. */
interface Mixture {
  readonly weight: Weight
  readonly hypotheses: number
  readonly scores: number
}

const single = (weight: Weight): Mixture => ({ weight, hypotheses: 1, scores: 0 })

/** Mixtures by their names and widths. */
function mixtureOf(name: string, width: number): Mixture | undefined {
  switch (name) {
    case 'plan':
      return width === 4955 ? { weight: 'path', hypotheses: 5, scores: 1 } : single('path')
    case 'lead':
      return width === 102 ? { weight: 'other', hypotheses: 2, scores: 3 } : single('other')
    case 'lane_lines':
      return single('lane')
    case 'road_edges':
      return single('edge')
    case 'pose':
    case 'sim_pose':
    case 'road_transform':
    case 'wide_from_device_euler':
    case 'desired_curvature':
    case 'action':
      return single('other')
    default:
      return undefined
  }
}

/** Outputs that are scores of groups of eight, of which one is true. */
const choices = ['desire_state', 'desire_pred']
/** Outputs that are scores of what may be true independently. */
const chances = ['meta', 'lane_lines_prob', 'lead_prob']
/** Outputs that mean nothing. */
const isPad = (name: string): boolean => name === 'pad'

/** Bounds of the logarithms of scales: 1e-6, and that of openpilot. */
const [minLogScale, maxLogScale] = [Math.log(1e-6), 11]

/** See `drivingLoss` of distillation.ts. */
export function lossOf(student: DrivingModel, options: DrivingLossOptions): Graph {
  expectKnownOptions('options', options, Object.keys(defaults))
  const settings: Settings = { ...defaults, ...options }
  expectOneOf('options.target', settings.target, ['distribution', 'mean'])
  for (const [name, value] of Object.entries(settings))
    if (name !== 'target') expectNumber(`options.${name}`, value, 0)
  const loss = new LossGraph(student, settings)
  const slices = slicesOf(student)
  const parts = [...slices].flatMap(([name, ends]) => (isPad(name) ? [] : loss.part(name, ends)))
  if (parts.length === 0) {
    const names = [...slices.keys()].join(', ') || 'none'
    throw new SparkError('ERR_UNSUPPORTED', `no output can be compared with a teacher's: ${names}`)
  }
  return loss.sum(parts)
}

const integers = (...values: number[]): Tensor<'i64'> => Tensor.from(values.map(BigInt))

/** A pair of values: of the student, of the teacher. */
type Pair = readonly [student: string, teacher: string]

/** A graph of the parts of a loss. */
class LossGraph {
  readonly #g = new GraphBuilder({ name: 'driving-loss' })
  readonly #student: string
  readonly #teacher: string
  readonly #settings: Settings

  constructor(student: DrivingModel, settings: Settings) {
    const g = this.#g
    const { outputName } = student
    const width = widthOf(student)
    this.#student = g.input(outputName, 'f32', ['n', width])
    this.#teacher = g.input('target', 'f32', ['n', width])
    this.#settings = settings
  }

  /** The weighted parts of an output. */
  part(name: string, [start, end]: readonly [number, number]): string[] {
    const width = end - start
    if (width === 0) return []
    const pair = this.#both(side => this.#columns(side, start, end))
    const { prob, feature } = this.#settings
    if (name === 'hidden_state') return this.#weighted(feature, () => this.#features(pair))
    if (chances.includes(name)) return this.#weighted(prob, () => this.#chances(pair))
    if (choices.includes(name) && width % 8 === 0)
      return this.#weighted(prob, () => this.#choices(this.#shaped(pair, [-1, 8])))
    const mixture = mixtureOf(name, width)
    return mixture ? this.#mixture(pair, width, mixture) : []
  }

  /** The graph whose output is the sum of parts. */
  sum(parts: readonly string[]): Graph {
    return this.#g.output(this.#g.add('Sum', parts), 'loss').build()
  }

  #mixture(pair: Pair, width: number, { weight, hypotheses, scores }: Mixture): string[] {
    const { prob } = this.#settings
    const each = width / hypotheses
    const rows = this.#shaped(pair, [-1, hypotheses, each])
    const count = (each - scores) / 2
    const means = this.#both((_, i) => this.#columns(rows[i], 0, count, 2))
    const scales = this.#both((_, i) => this.#logScales(this.#columns(rows[i], count, 2 * count, 2)))
    const parts: string[] = []
    let certainty: string | undefined
    if (scores > 0) {
      // [n, scores, hypotheses]
      const logits = this.#both((_, i) =>
        this.#g.add('Transpose', [this.#columns(rows[i], 2 * count, each, 2)], { perm: [0, 2, 1] }),
      )
      parts.push(...this.#weighted(prob, () => this.#choices(logits)))
      const shares = this.#g.add('Softmax', [logits[1]], { axis: -1 })
      certainty = this.#g.add('ReduceMean', [shares, integers(1)], { keepdims: 0 })
    }
    const settings = this.#settings
    const cost = () => this.#laplace(means, scales, certainty, weight === 'path')
    parts.push(...this.#weighted(settings[weight], cost))
    if (weight === 'lane' || weight === 'edge')
      parts.push(...this.#weighted(settings[weight], () => this.#mean(this.#distance(means))))
    return parts
  }

  /** Distributions [n, hypotheses, values], summed or averaged over the values. */
  #laplace(means: Pair, logScales: Pair, certainty: string | undefined, isSummed: boolean): string {
    const g = this.#g
    const distance = this.#distance(means)
    const [ours, theirs] = logScales
    const inverse = g.add('Exp', [g.add('Neg', [ours])])
    const cost =
      this.#settings.target === 'mean'
        ? g.add('Add', [g.add('Mul', [distance, inverse]), g.add('Add', [ours, Math.LN2])])
        : this.#divergence(distance, inverse, ours, theirs)
    const each = g.add(isSummed ? 'ReduceSum' : 'ReduceMean', [cost, integers(2)], { keepdims: 0 })
    if (certainty === undefined) return this.#mean(each)
    const weighted = g.add('ReduceSum', [g.add('Mul', [each, certainty]), integers(1)], { keepdims: 0 })
    return this.#mean(weighted)
  }

  #divergence(distance: string, inverse: string, ours: string, theirs: string): string {
    const g = this.#g
    const scale = g.add('Exp', [theirs])
    const decay = g.add('Exp', [g.add('Neg', [g.add('Div', [distance, scale])])])
    const expected = g.add('Mul', [g.add('Add', [distance, g.add('Mul', [scale, decay])]), inverse])
    return g.add('Sub', [g.add('Add', [expected, g.add('Sub', [ours, theirs])]), 1])
  }

  /** KL of probabilities of what may be true independently. */
  #chances(scores: Pair): string {
    const g = this.#g
    const truth = g.add('Sigmoid', [scores[1]])
    const [ours, theirs] = this.#both((_, i) =>
      g.add('Sub', [g.add('Softplus', [scores[i]]), g.add('Mul', [truth, scores[i]])]),
    )
    return this.#mean(g.add('Sub', [ours, theirs]))
  }

  /** KL of probabilities over the last axis. */
  #choices(scores: Pair): string {
    const g = this.#g
    const [ours, theirs] = this.#both((_, i) => g.add('LogSoftmax', [scores[i]], { axis: -1 }))
    const cost = g.add('Mul', [g.add('Exp', [theirs]), g.add('Sub', [theirs, ours])])
    return this.#mean(g.add('ReduceSum', [cost, integers(-1)], { keepdims: 0 }))
  }

  #features(pair: Pair): string {
    const { temperature } = this.#settings
    const softened = this.#both((_, i) => this.#g.add('Mul', [pair[i], 1 / temperature]))
    return this.#g.add('Mul', [this.#choices(softened), temperature ** 2])
  }

  #both(make: (side: string, index: 0 | 1) => string): Pair {
    return [make(this.#student, 0), make(this.#teacher, 1)]
  }

  #shaped(pair: Pair, shape: readonly number[]): Pair {
    return this.#both((_, i) => this.#g.add('Reshape', [pair[i], integers(...shape)]))
  }

  #columns(value: string, start: number, end: number, axis = 1): string {
    return this.#g.add('Slice', [value, integers(start), integers(end), integers(axis)])
  }

  #logScales(raw: string): string {
    return this.#g.add('Clip', [raw, minLogScale, maxLogScale])
  }

  #distance([ours, theirs]: Pair): string {
    return this.#g.add('Abs', [this.#g.add('Sub', [ours, theirs])])
  }

  #mean(value: string): string {
    return this.#g.add('ReduceMean', [value], { keepdims: 0 })
  }

  /** A part, unless its weight is 0. */
  #weighted(weight: number, make: () => string): string[] {
    return weight === 0 ? [] : [this.#g.add('Mul', [make(), weight])]
  }
}
