// driving.ts: the networks of openpilot since 2025: vision and policy, in files of their own or in one.
import type { Network } from './network.js'
import { policy, policySizes } from './policy.js'
import { featureWidth, vision, visionSizes } from './vision.js'

/** Sizes of the outputs of `driving_supercombo` by their names, in their order. */
export const drivingSupercomboSizes = [...visionSizes, ...policySizes]

/** Adds `driving_vision` and returns its output, f16 [1, 1576]. */
export function drivingVision(net: Network): string {
  const shape = { trunk: { widths: [128, 256, 512, 1024], depths: [2, 2, 6, 2] }, neck: 2048 }
  const { outputs, hidden } = vision(net, shape)
  return net.add('outputs', 'Concat', [...outputs, hidden], { axis: 1 })
}

/** Adds `driving_policy` and returns its output, f16 [1, 1000]. */
export function drivingPolicy(net: Network): string {
  const desire = net.input('desire_pulse', 'f16', [1, 25, 8])
  const traffic = net.input('traffic_convention', 'f16', [1, 2])
  const features = net.input('features_buffer', 'f16', [1, 25, featureWidth])
  const outputs = policy(net, { features, desire, settings: [[traffic, 2]] })
  return net.add('outputs', 'Concat', outputs, { axis: 1 })
}

/** Adds `driving_supercombo` of 2026 and returns its output, f16 [1, 2576]. */
export function drivingSupercombo(net: Network): string {
  const shape = { trunk: { widths: [96, 192, 384, 768], depths: [4, 6, 12, 3] }, neck: 2048 }
  const { outputs, hidden } = vision(net, shape)
  const buffer = net.input('features_buffer', 'f16', [1, 24, featureWidth])
  const desire = net.input('desire_pulse', 'f16', [1, 25, 8])
  const traffic = net.input('traffic_convention', 'f16', [1, 2])
  const action = net.input('action_t', 'f16', [1, 2])
  const scope = 'features'
  const present = net.add(scope, 'Reshape', [hidden, net.integers(scope, 1, 1, featureWidth)])
  const features = net.add(scope, 'Concat', [buffer, present], { axis: 1 })
  const settings = [
    [traffic, 2],
    [action, 2],
  ] as const
  const planned = policy(net, { features, desire, settings })
  return net.add('outputs', 'Concat', [...outputs, hidden, ...planned], { axis: 1 })
}
