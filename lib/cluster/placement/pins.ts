// pins.ts: layers that a user puts on a node or device: `0-10=spark-1`, `head=spark-2/gpu0`.
import { didYouMean } from '../../core/did-you-mean.js'
import { SparkError } from '../../core/errors.js'
import type { ModelCosts } from './costs.js'
import type { Fleet } from './fleet.js'
import type { Pin } from './problem.js'

/**
 * Reads pins.
 * @param texts - `layers=target`: a layer or the first and last of several, by name; a node or a device, or several joined by `+`
 * that share each of the layers
 * @throws SparkError ERR_ARGUMENT naming the pin for a layer or target that does not exist, and for two that disagree
 */
export function readPins(texts: readonly string[], costs: ModelCosts, fleet: Fleet): Pin[] {
  const targets = new Set(fleet.devices.flatMap(({ name, node }) => [name, node]))
  const pins: Pin[] = []
  for (const text of texts) {
    const equals = text.indexOf('=')
    const [layers, target] = [text.slice(0, equals), text.slice(equals + 1)]
    if (equals < 1 || target === '') throw pinError(text, 'expected <layers>=<node>, such as 0-10=spark-1')
    for (const name of target.split('+'))
      if (!targets.has(name))
        throw pinError(text, `the fleet has no node or device '${name}'${didYouMean(name, targets)}`)
    const [from, last = from, ...rest] = layers.split('-').map(name => indexOf(text, name, costs))
    if (rest.length > 0 || last! < from!)
      throw pinError(text, 'expected the first and the last layer, such as 0-10')
    const pin = { from: from!, end: last! + 1, target }
    const other = pins.find(each => each.from < pin.end && pin.from < each.end && each.target !== target)
    if (other) throw pinError(text, `some of these layers are pinned to '${other.target}', too`)
    pins.push(pin)
  }
  return pins
}

function indexOf(pin: string, name: string, { layers }: ModelCosts): number {
  const index = layers.findIndex(layer => layer.name === name.trim())
  if (index >= 0) return index
  const names = layers.map(layer => layer.name)
  const shown = names.length > 6 ? [...names.slice(0, 3), '…', ...names.slice(-2)] : names
  throw pinError(pin, `there is no layer '${name}': layers are ${shown.join(', ')}`)
}

const pinError = (pin: string, why: string): SparkError =>
  new SparkError('ERR_ARGUMENT', `pin '${pin}': ${why}`)
