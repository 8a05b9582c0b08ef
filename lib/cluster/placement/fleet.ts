// fleet.ts: machines, their devices and links, as fleet.json describes them.
import type { ErrorObject, ValidateFunction } from 'ajv/dist/2020.js'
import { argumentError } from '../../core/checks.js'
import { didYouMean } from '../../core/did-you-mean.js'
import { SparkError } from '../../core/errors.js'
import type { OperatorUse } from './costs.js'
import type { DeviceEntry, DeviceSpec, FleetFile, LinkSpec, NodeEntry } from './fleet-file.js'
import { fleetSchema } from './fleet-schema.js'
import { presets } from './presets.js'

export type { DeviceSpec, FleetFile, LinkSpec, OperatorSet } from './fleet-file.js'

/** A device that layers can be put on. */
export interface FleetDevice extends Required<DeviceSpec> {
  /** `node`, or `node/device` where the node has several. */
  readonly name: string
  /** The machine that it is in. */
  readonly node: string
}

/** Between the devices of a node where fleet.json says nothing: PCI Express 4.0 x16. */
const localLink: LinkSpec = { latency: 1e-5, bandwidth: 25e9, fabric: true }

const maxDevices = 10_000

/** Machines, their devices and links. */
export class Fleet {
  /** All devices, in the order of the file. */
  readonly devices: readonly FleetDevice[]
  readonly #links = new Map<string, LinkSpec>()
  readonly #classes = new Map<string, string[]>()
  readonly #local: ReadonlyMap<string, LinkSpec>
  readonly #network: LinkSpec | undefined
  readonly #direct = new Map<string, LinkSpec>()

  /**
   * @param file - that `readFleet` has checked
   * @param direct - links of groups, where what goes from stage to stage takes another way
   */
  constructor(file: FleetFile, direct: FleetFile['links'] = []) {
    const nodes = file.nodes.flatMap(repeated)
    this.devices = nodes.flatMap(devicesOf)
    this.#network = file.network
    this.#local = new Map(nodes.map(({ name, link }) => [name, { ...localLink, ...link, fabric: true }]))
    for (const { between, ...link } of direct) {
      this.#direct.set(`${between[0]}/${between[1]}`, link)
      this.#direct.set(`${between[1]}/${between[0]}`, link)
    }
    for (const { between, ...link } of file.links ?? []) {
      const [a, b] = between
      this.#links.set(`${a}/${b}`, link)
      this.#links.set(`${b}/${a}`, link)
      const text = `${link.latency}/${link.bandwidth}/${link.fabric ?? false}`
      for (const node of between) this.#classes.set(node, [...(this.#classes.get(node) ?? []), text])
    }
  }

  /** The link from a device to another; undefined where they cannot reach each other. */
  link(from: FleetDevice, to: FleetDevice): LinkSpec | undefined {
    if (from.node === to.node) return this.#local.get(from.node)
    return this.#links.get(`${from.node}/${to.node}`) ?? this.#network
  }

  /** The link that two devices of a group share layers over. */
  groupLink(from: FleetDevice, to: FleetDevice): LinkSpec | undefined {
    return this.#direct.get(`${from.node}/${to.node}`) ?? this.link(from, to)
  }

  /** The links that fleet.json names of a node, as a text; nodes with equal texts are linked alike. Most have none. */
  linkClass(node: string): string {
    return this.#classes.get(node)?.sort().join(' ') ?? ''
  }
}

function repeated(node: NodeEntry): NodeEntry[] {
  if (node.count === undefined) return [node]
  return Array.from({ length: node.count }, (_, i) => ({ ...node, name: `${node.name}-${i + 1}` }))
}

function devicesOf({ name: node, devices }: NodeEntry): FleetDevice[] {
  const all = devices.flatMap(entry => Array.from({ length: entry.count ?? 1 }, (_, i) => ({ entry, i })))
  return all.map(({ entry, i }, index) => {
    const { name, count = 1, preset, ...given } = entry
    const own = name === undefined ? `device${index}` : count === 1 ? name : `${name}-${i + 1}`
    const { source: _, ...known } = preset === undefined ? { source: '' } : presets[preset]!
    const spec = { reserve: 0, operators: 'all', headroom: 1, overhead: 0, ...known, ...given } as const
    return { ...(spec as Required<DeviceSpec>), node, name: all.length === 1 ? node : `${node}/${own}` }
  })
}

/** Bytes that models may take. */
export const freeBytes = ({ memory, reserve }: Pick<FleetDevice, 'memory' | 'reserve'>): number =>
  Math.max(0, memory - reserve)

/** Whether a device can run an operator. */
export const canRun = ({ operators }: FleetDevice, { op, dtype }: OperatorUse): boolean =>
  operators === 'all' ||
  operators.some(
    each => (each.op === '*' || each.op === op) && (each.dtypes.includes('*') || each.dtypes.includes(dtype)),
  )

/** Dtypes whose rate holds for one that has none, the nearest first: values are widened before they are multiplied. */
const wider: Readonly<Record<string, readonly string[]>> = {
  f4_e2m1: ['f8_e4m3', 'bf16', 'f16', 'f32'],
  f8_e4m3: ['bf16', 'f16', 'f32'],
  i8: ['f16', 'bf16', 'f32'],
  bf16: ['f16', 'f32'],
  f16: ['bf16', 'f32'],
}

/** Operations a second of a device in a dtype, as warm as it is. */
export function flopRate(
  { flops, headroom }: Pick<FleetDevice, 'flops' | 'headroom'>,
  dtype: string,
): number {
  const known = [dtype, ...(wider[dtype] ?? ['f32'])].find(each => flops[each] !== undefined)
  const slowest = (): number => Object.values(flops).reduce((a, b) => Math.min(a, b))
  return headroom * (known === undefined ? slowest() : flops[known]!)
}

let validator: ValidateFunction | undefined

/**
 * Reads a fleet.
 * @param json - content of fleet.json, whose schema `dgx-spark place --schema` prints
 * @param where - how messages call it
 * @param direct - as {@link Fleet} takes it
 * @throws SparkError ERR_FORMAT naming the field that is wrong by its path
 */
export async function readFleet(json: unknown, where = 'fleet', direct?: FleetFile['links']): Promise<Fleet> {
  if (!validator) {
    const { Ajv2020 } = await import('ajv/dist/2020.js')
    validator = new Ajv2020({ strictTypes: false }).compile(fleetSchema)
  }
  if (!validator(json)) throw schemaError(where, json, validator.errors!)
  const file = json as FleetFile
  const total = file.nodes.reduce(
    (sum, { count = 1, devices }) => sum + count * devices.reduce((all, each) => all + (each.count ?? 1), 0),
    0,
  )
  if (total > maxDevices)
    throw new SparkError('ERR_FORMAT', `${where} has ${total} devices: ${maxDevices} are the limit`)
  expectNames(file, where)
  for (const [i, { devices }] of file.nodes.entries())
    for (const [j, entry] of devices.entries()) expectComplete(entry, `${where}.nodes.${i}.devices.${j}`)
  return new Fleet(file, direct)
}

function schemaError(where: string, json: unknown, errors: readonly ErrorObject[]): SparkError {
  const { instancePath, keyword, params, message } =
    errors.find(each => each.keyword === 'anyOf') ?? errors[0]!
  const path = instancePath.split('/').slice(1)
  const value = path.reduce<unknown>((inner, key) => (inner as Record<string, unknown>)?.[key], json)
  const field = [where, ...path].join('.')
  if (keyword === 'required')
    return new SparkError('ERR_FORMAT', `${field} lacks '${params.missingProperty}'`)
  if (keyword === 'additionalProperties') {
    const known = Object.keys((value as object) ?? {})
    const name = String(params.additionalProperty)
    return new SparkError(
      'ERR_FORMAT',
      `${field} has a field '${name}', which is not known; it has ${known.join(', ')}`,
    )
  }
  const wanted: Readonly<Record<string, string>> = {
    anyOf: "'all', or a list of { op, dtypes }",
    pattern: 'a name without spaces, commas, / and =',
  }
  const expected = wanted[keyword] ?? (message ?? '').replace(/^must be /, '')
  return argumentError(field, expected, value, 'ERR_FORMAT')
}

function expectNames(file: FleetFile, where: string): void {
  const names = new Set<string>()
  for (const [i, node] of file.nodes.entries()) {
    const devices = new Set<string>()
    for (const [j, { name }] of node.devices.entries()) {
      if (name !== undefined && devices.has(name))
        throw new SparkError('ERR_FORMAT', `${where}.nodes.${i}.devices.${j}.name: '${name}' is there twice`)
      if (name !== undefined) devices.add(name)
    }
    for (const { name } of repeated(node)) {
      if (names.has(name))
        throw new SparkError('ERR_FORMAT', `${where}.nodes.${i}.name: '${name}' is there twice`)
      names.add(name)
    }
  }
  for (const [i, { between }] of (file.links ?? []).entries()) {
    for (const name of between) {
      if (names.has(name)) continue
      const message = `${where}.links.${i}.between: there is no node '${name}'${didYouMean(name, names)}`
      throw new SparkError('ERR_FORMAT', message)
    }
    if (between[0] === between[1])
      throw new SparkError('ERR_FORMAT', `${where}.links.${i}.between joins '${between[0]}' to itself`)
  }
}

function expectComplete(entry: DeviceEntry, where: string): void {
  const { preset } = entry
  if (preset !== undefined && !Object.hasOwn(presets, preset)) {
    const known = Object.keys(presets)
    const message = `${where}.preset: '${preset}' is not known${didYouMean(preset, known)}; known: ${known.join(', ')}`
    throw new SparkError('ERR_FORMAT', message)
  }
  if (preset !== undefined) return
  for (const key of ['backend', 'memory', 'bandwidth', 'flops'] as const)
    if (entry[key] === undefined)
      throw new SparkError('ERR_FORMAT', `${where} lacks '${key}': give it, or a preset`)
}
