// pressure-watch.ts: looks every two seconds what presses on a node, while it runs.
import { setTimeout as pause } from 'node:timers/promises'
import { debug } from '../../core/log.js'
import { LocalConstraints } from '../devices/constraints.js'
import type { DeviceRecord } from '../devices/device-record.js'
import { NodePressure, type NodePressureOptions } from '../devices/node-pressure.js'
import { PressureGate } from '../devices/pressure-gate.js'
import type { PressureState } from './cluster-state.js'

/** How a node treats pressure: {@link NodePressure} with this machine's constraints unless others are given. */
export type PressureWatchOptions = Partial<NodePressureOptions>

/** How often it looks. */
const lookMs = 2000

/** Follows the pressure on a node. */
export class PressureWatch {
  /** Work passes it before each step. */
  readonly gate: PressureGate
  readonly #pressure: NodePressure
  #state: PressureState = { level: 'full', reasons: [] }

  /** @throws SparkError ERR_ARGUMENT */
  constructor({
    gate = new PressureGate(),
    constraints = new LocalConstraints(),
    ...more
  }: PressureWatchOptions) {
    this.gate = gate
    this.#pressure = new NodePressure({ gate, constraints, ...more })
  }

  /** What is done now. */
  get state(): PressureState {
    return this.#state
  }

  /**
   * Looks until the signal aborts.
   * @param devices - those of this node
   * @param onChanged - told of each level that is reached
   */
  async follow(
    devices: () => readonly DeviceRecord[],
    onChanged: (state: PressureState) => void,
    signal: AbortSignal,
  ): Promise<void> {
    while (!signal.aborted) {
      try {
        const { level, reasons, changed } = await this.#pressure.update(devices())
        this.#state = { level, reasons }
        if (changed && !signal.aborted) onChanged(this.#state)
      } catch (error) {
        debug(`pressure: ${(error as Error).message}`)
      }
      await pause(lookMs, undefined, { signal, ref: false }).catch(() => {})
    }
  }
}
