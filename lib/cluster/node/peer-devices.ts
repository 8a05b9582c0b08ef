// peer-devices.ts: nodes tell each other which devices they have, and how busy these are.
import { SparkError } from '../../core/errors.js'
import { debug } from '../../core/log.js'
import type { DeviceEvent, DeviceRegistry } from '../devices/device-registry.js'
import { deviceRates } from '../devices/measure-rates.js'
import type { LinkChannel, LinkChannels } from '../links/channels.js'
import type { FrameStream } from '../links/frame-stream.js'
import type { Frame } from '../links/record.js'

/** Types of frames. */
const frameTypes = { devices: 1, telemetry: 2 } as const
/** Bytes of a message at most. */
const maxBytes = 4 << 20
/** How often telemetry is sent. */
const telemetryMs = 2000

/** Exchanges devices over links. */
export class PeerDevices {
  readonly #registry: DeviceRegistry
  readonly #onEvent: (event: DeviceEvent) => void

  /** @param onEvent - told of devices of any node that come, go or change */
  constructor(registry: DeviceRegistry, onEvent: (event: DeviceEvent) => void) {
    this.#registry = registry
    this.#onEvent = onEvent
  }

  /** Devices of this node changed. */
  changed(event: DeviceEvent, links: readonly FrameStream[]): void {
    this.#onEvent(event)
    for (const link of links) this.#send(link, frameTypes.devices, this.own)
  }

  /** Measures devices of this node that were never measured, and tells the other nodes. */
  async measureRates(links: () => readonly FrameStream[], signal: AbortSignal): Promise<void> {
    try {
      await this.#registry.poll()
      for (const device of this.own) {
        const rates = signal.aborted ? undefined : await deviceRates(device)
        if (!rates) continue
        this.#registry.setRates(device.id, rates)
        this.#onEvent({ type: 'changed', device: this.#registry.get(device.id)! })
        for (const link of links()) this.#send(link, frameTypes.devices, this.own)
      }
    } catch (error) {
      debug(`devices were not measured: ${(error as Error).message}`)
    }
  }

  /** Tells the node of a link what is here, and takes what it tells, while the link lasts. */
  exchange(channels: LinkChannels): void {
    const channel = channels.open([frameTypes.devices, frameTypes.telemetry])
    const { link } = channel
    this.#send(link, frameTypes.devices, this.own)
    const timer = setInterval(() => {
      const measured = this.own.flatMap(({ id, telemetry }) => (telemetry ? [{ id, telemetry }] : []))
      if (link.idle) this.#send(link, frameTypes.telemetry, measured)
    }, telemetryMs).unref()
    void link.closed.then(() => clearInterval(timer))
    this.#receive(channel).catch(error => {
      const { message } = error as Error
      debug(`devices of ${link.peer.nodeId}: ${message}`)
      link.destroy(new SparkError('ERR_FORMAT', message, { cause: error }))
    })
  }

  /** A node is gone, and its devices with it. */
  lost(nodeId: string): void {
    for (const event of this.#registry.peerLost(nodeId)) this.#onEvent(event)
  }

  /** Devices of this node. */
  get own(): DeviceRegistry['devices'] {
    return this.#registry.devices.filter(({ nodeId }) => nodeId === this.#registry.nodeId)
  }

  #send(link: FrameStream, type: number, value: unknown): void {
    const payload = Buffer.from(JSON.stringify(value))
    link.send({ type, id: 0, payload }).catch(error => debug(`devices: ${(error as Error).message}`))
  }

  async #receive(channel: LinkChannel): Promise<void> {
    for await (const frame of channel) await this.#take(channel.peer.nodeId, frame)
  }

  /** @throws SparkError ERR_FORMAT, SyntaxError for what is no list of devices of that node */
  async #take(nodeId: string, { type, payload }: Frame): Promise<void> {
    if (payload.byteLength > maxBytes)
      throw new RangeError(`a list of devices has ${payload.byteLength} bytes`)
    if (type === frameTypes.devices) {
      const records = JSON.parse(payload.toString()) as unknown[]
      for (const event of await this.#registry.acceptPeer(nodeId, records)) this.#onEvent(event)
    } else if (type === frameTypes.telemetry) {
      const list = JSON.parse(payload.toString()) as { id: string; telemetry: unknown }[]
      if (!Array.isArray(list)) throw new TypeError('telemetry is a list')
      for (const { id, telemetry } of list.slice(0, 256))
        this.#registry.acceptTelemetry(nodeId, `${id}`, telemetry)
    }
  }
}
