// pack-weights.ts: constant weights in the layouts that kernels of the CPU stream.
import { mapPaced, type Paced } from '../core/paced.js'
import { numel } from '../core/shape.js'
import { ceilDivide, fixSize } from '../core/size.js'
import { winogradSize } from '../kernels/js/winograd.js'
import type { Bf16Support, Weight } from '../kernels/kernels.js'
import { panelSizes } from '../weights/panels.js'
import { Buffer, type Operand, operandsOf, type Step, type Symbolic } from './program.js'

export type SymbolicWeight = Symbolic<Weight>
type PackStep = Extract<Step, { op: 'packWeight' }>
export type ConvArgs = Extract<Step, { op: 'conv' }>['args']

/**
 * A weight in panels, and the step that packs it.
 * @param transposed - whether its elements are there column by column
 */
export function packStep(
  weight: SymbolicWeight,
  transposed = false,
): { step: PackStep; packed: SymbolicWeight } {
  const { format, rows, cols } = weight
  const sizes = panelSizes({ format, rows: fixSize(rows), cols: fixSize(cols) })
  const data = new Buffer(weight.data.buffer.dtype, sizes.data, 'arena')
  const scales = 'blockScale' in weight ? new Buffer('u8', sizes.blockScale, 'arena') : undefined
  const step: PackStep = {
    op: 'packWeight',
    args: { weight, transposed, data: data.write(), blockScale: scales?.write() },
  }
  const blockScale = scales && { blockScale: scales.read() }
  const packed = { ...weight, data: data.read(), ...blockScale, layout: 'panels' } as SymbolicWeight
  return { step, packed }
}

/** How weights are packed. */
export interface Packing {
  /** What multiplies bf16. */
  readonly bf16Support: Bf16Support
  /** Whether filters may become tiles of Winograd's algorithm, which take four times their memory, or more. */
  readonly enlarges: boolean
}

/**
 * Lets products read constant f32 weights, and convolutions constant weights of every format, in the layout that kernels
 * stream; steps that make it go to `setup`. A weight that other kernels read as well stays as it is: two copies would
 * cost more memory than they save time.
 * @param steps - what is computed at each run
 */
export function* packWeights(
  steps: readonly Step[],
  setup: Step[],
  { bf16Support, enlarges }: Packing,
): Paced<Step[]> {
  const isProduct = ({ op }: Step): boolean => op === 'linear' || op === 'expertLinear' || op === 'conv'
  if (!steps.some(isProduct)) return [...steps]
  const stays = yield* weightsThatStay(steps, isProduct)
  const minTilesOf = (args: ConvArgs): number | undefined => (enlarges ? tilesFor(args) : undefined)
  const add = (step: Step): void => {
    for (const { buffer, access } of operandsOf(step.args)) if (access === 'write') buffer.storage = 'folded'
    setup.push(step)
  }
  const inPanels = once(weight => {
    const { step, packed } = packStep(weight)
    add(step)
    return packed
  })
  const inTiles = once(weight => {
    const data = new Buffer('f32', winogradSize(fixSize(weight.rows), fixSize(weight.cols)), 'arena')
    add({ op: 'winogradWeight', args: { weight, data: data.write() } })
    return data.read()
  })
  return yield* mapPaced(steps, (step): Step => {
    if (step.op === 'linear' || step.op === 'expertLinear') {
      const { weight } = step.args
      if (weight.format !== 'f32' || weight.layout === 'panels' || stays(weight)) return step
      return { ...step, args: { ...step.args, weight: inPanels(weight) } } as Step
    }
    if (step.op !== 'conv' || step.args.groups !== 1 || stays(step.args.weight)) return step
    const { args } = step
    const minTiles = minTilesOf(args)
    if (args.compute !== 'bf16') return { ...step, args: packedConv(args, minTiles, inPanels, inTiles) }
    if (bf16Support === 'matrix' || minTiles === undefined) return step
    return { ...step, args: { ...args, winograd: inTiles(args.weight), minTiles } }
  })
}

/** Whether a weight is no constant, or read by other steps than these. */
export function* weightsThatStay(
  steps: readonly Step[],
  isReader: (step: Step) => boolean,
): Paced<(weight: SymbolicWeight) => boolean> {
  const shared = new Set<Buffer>()
  for (const step of steps) {
    if (!isReader(step)) for (const { buffer } of operandsOf(step.args)) shared.add(buffer)
    yield
  }
  return ({ data: { buffer } }) => !isConstant(buffer) || shared.has(buffer)
}

/** Whether the elements are the same in each run. */
export const isConstant = ({ storage }: Buffer): boolean => storage === 'constant' || storage === 'folded'

/** What `make` makes of a weight, once for all that read it so. */
export function once<How extends readonly (string | number)[], T>(
  make: (weight: SymbolicWeight, ...how: How) => T,
): (weight: SymbolicWeight, ...how: How) => T {
  const known = new Map<Buffer, Map<string, T>>()
  return (weight, ...how) => {
    const { buffer, offset } = weight.data
    const views = known.get(buffer) ?? new Map<string, T>()
    known.set(buffer, views)
    const view = `${offset}: ${weight.rows} x ${weight.cols} ${how.join(' ')}`
    const made = views.get(view) ?? make(weight, ...how)
    views.set(view, made)
    return made
  }
}

/** Where Winograd's algorithm is faster than panels: decision 117, rows `conv` of `npm run bench conv '3 '`. */
const winograd = {
  /** Tiles of 4 x 4 outputs in an image. */
  minTiles: 16,
  /** Channels, and filters. */
  minChannels: 16,
  /** Channels times filters. */
  minWeights: 1 << 10,
  /** The same for each tile: more take longer to read than they save. */
  maxWeightsPerTile: 1 << 14,
}

/** Filters from which on a panel is not mostly padding. */
const fewFilters = 16

/** A convolution with its weight in tiles or in panels, whichever is faster, or in both where that depends on the sizes. */
function packedConv(
  args: ConvArgs,
  minTiles: number | undefined,
  inPanels: (weight: SymbolicWeight) => SymbolicWeight,
  inTiles: (weight: SymbolicWeight) => Operand,
): ConvArgs {
  const { weight } = args
  if (minTiles === 0) return { ...args, weight: withoutElements(weight), winograd: inTiles(weight) }
  const isPacked = weight.layout === 'panels' || fixSize(weight.rows) < fewFilters
  const packed = { ...args, weight: isPacked ? weight : inPanels(weight) }
  return minTiles === undefined ? packed : { ...packed, winograd: inTiles(weight), minTiles }
}

/** What a convolution that reads another layout takes of its weight. */
export function withoutElements(weight: SymbolicWeight): SymbolicWeight {
  const data = new Buffer(weight.data.buffer.dtype, 0, 'constant', () => new Float32Array(0))
  return { ...weight, data: data.read() } as SymbolicWeight
}

/**
 * Formats of weights that may become longer: tiles of f32 take 8 times the memory of f16 and bf16; a weight keeps its rounding, and
 * products are then those of f32. Shorter formats are chosen for their size.
 */
export const wideFormats: readonly string[] = ['f32', 'f16', 'bf16']

/**
 * From how many tiles of an image on Winograd's algorithm is faster; 0 where the image always has them, undefined where it
 * never is.
 */
function tilesFor({ weight, kernel, strides, dilations, out }: ConvArgs): number | undefined {
  const fits =
    kernel.length === 2 &&
    wideFormats.includes(weight.format) &&
    [...strides, ...dilations].every(step => step === 1)
  if (!fits || !kernel.every(size => size === 3)) return undefined
  const [filters, channels] = [fixSize(weight.rows), fixSize(weight.cols) / 9]
  const weights = filters * channels
  if (Math.min(filters, channels) < winograd.minChannels || weights < winograd.minWeights) return undefined
  const tiles = numel(out.map(size => ceilDivide(size, 4)))
  const enough = Math.max(winograd.minTiles, Math.ceil(weights / winograd.maxWeightsPerTile))
  if (typeof tiles !== 'number') return enough
  return tiles < enough ? undefined : 0
}
