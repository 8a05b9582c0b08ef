// vision.ts: from pictures to what is in them: the trunk, the features for the policy, a head for each output.
import { type TrunkShape, trunk } from './fastvit.js'
import { dense, linear, residual } from './layers.js'
import type { Network } from './network.js'

/** An output with the width of its head and the number of residual blocks in that. */
interface VisionHead {
  readonly name: string
  readonly out: number
  readonly hidden: number
  readonly blocks?: number
}

/** In the order of the outputs. */
const heads: readonly VisionHead[] = [
  { name: 'meta', out: 55, hidden: 256, blocks: 1 },
  { name: 'desire_pred', out: 32, hidden: 128 },
  { name: 'pose', out: 12, hidden: 128 },
  { name: 'wide_from_device_euler', out: 6, hidden: 128 },
  { name: 'road_transform', out: 12, hidden: 128 },
  { name: 'lane_lines', out: 528, hidden: 256, blocks: 1 },
  { name: 'lane_lines_prob', out: 8, hidden: 128 },
  { name: 'road_edges', out: 264, hidden: 256, blocks: 1 },
  { name: 'lead', out: 144, hidden: 256, blocks: 1 },
  { name: 'lead_prob', out: 3, hidden: 128 },
]

/** Numbers that the policy gets of a frame. */
export const featureWidth = 512

/** Sizes of the outputs of vision by their names, in their order. */
export const visionSizes: readonly (readonly [string, number])[] = [
  ...heads.map(({ name, out }) => [name, out] as const),
  ['hidden_state', featureWidth],
]

/** What vision is made of. */
export interface VisionShape {
  readonly trunk: TrunkShape
  /** Numbers between the trunk and the features. */
  readonly neck: number
}

/**
 * Adds the inputs `img` and `big_img`, u8 [1, 12, 128, 256], and everything behind them.
 * @returns the outputs of the heads in their order, [1, size] each, and the features [1, 512], whose mean square is 1
 */
export function vision(net: Network, shape: VisionShape): { outputs: readonly string[]; hidden: string } {
  const cameras = ['img', 'big_img'].map(name => net.input(name, 'u8', [1, 12, 128, 256]))
  const features = trunk(net, cameras, shape.trunk)
  const hidden = summarise(net, features, 2 * shape.trunk.widths.at(-1)!, shape.neck)
  const opened = dense(net, hidden, 'hydra.in', featureWidth, featureWidth)
  const common = residual(net, opened, 'hydra.resblock', featureWidth, featureWidth)
  const outputs = heads.map(({ name, out, hidden, blocks = 0 }) => {
    const scope = `hydra.${name}`
    let x = dense(net, common, `${scope}.in_layer`, featureWidth, hidden)
    for (let i = 0; i < blocks; i++) x = residual(net, x, `${scope}.resblocks.${i}`, hidden, hidden)
    return linear(net, x, `${scope}.final_layer`, hidden, out, 1)
  })
  return { outputs, hidden }
}

/** [1, width] -> [1, 512], divided by the root of the mean square. */
function summarise(net: Network, x: string, width: number, neck: number): string {
  const scope = 'summarizer'
  const opened = dense(net, x, 'vision.head.fc', width, neck)
  const inner = residual(net, opened, `${scope}.resblock`, neck, featureWidth)
  const mu = linear(net, inner, `${scope}.mu`, featureWidth, featureWidth)
  const square = net.add(scope, 'Pow', [mu, net.number(scope, 2)])
  const mean = net.add(scope, 'ReduceMean', [square], { axes: [-1], keepdims: 1 })
  return net.add(scope, 'Div', [mu, net.add(scope, 'Sqrt', [mean])])
}
