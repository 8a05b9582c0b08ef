// packets.ts: DNS-SD records of a node, and what the records of others say. Nothing that they say is trusted: it is where
// to ask, and the certificate that is shown there counts.
import { isIP } from 'node:net'
import type { Answer, Packet } from 'dns-packet'
import { argumentError, expectInteger } from '../../core/checks.js'
import { isUuid } from '../trust/node-identity.js'

/** What a node tells the network about itself. */
export interface Announcement {
  /** A uuid. */
  readonly nodeId: string
  /** A label such as the host's name: 1 to 60 bytes without dots. Another node's equal name makes it `name (2)`. */
  readonly name: string
  /** Where links are taken, 1 to 65535. */
  readonly port: number
  /** SHA-256 of the CA's certificate, in hexadecimal digits; the first 16 bytes are told. */
  readonly fingerprint: string
  /** Hash of the cluster's name, 8 bytes in hexadecimal digits. */
  readonly namespace: string
  /** Devices that compute. */
  readonly devices: number
  /** GiB of memory. */
  readonly memoryGiB: number
}

/** What one response said about one instance. */
export interface Sighting {
  /** Full name of the instance in lower case: the key of what is known about it. */
  readonly instance: string
  readonly name: string
  readonly nodeId: string
  readonly port: number
  readonly addresses: readonly string[]
  readonly fingerprint: string
  readonly namespace: string
  readonly devices: number | undefined
  readonly memoryGiB: number | undefined
  /** Seconds. */
  readonly ttl: number
}

/** Seconds that records are kept. */
export const recordTtl = 120

const protocolVersion = '1'
const maxTxtBytes = 400
const maxRecords = 128
const maxAddresses = 8

/** The domain name of a service such as `_exo-gpu._tcp`. */
export function serviceDomain(service: string): string {
  if (typeof service !== 'string' || !/^_[a-z0-9-]{1,15}\._(tcp|udp)$/.test(service))
    throw argumentError('service', 'like _exo-gpu._tcp', service)
  return `${service}.local`
}

/** @throws SparkError ERR_ARGUMENT */
export function expectAnnouncement(value: Announcement): void {
  const { nodeId, name, port, fingerprint, namespace, devices, memoryGiB } = value
  if (!isUuid(nodeId)) throw argumentError('nodeId', 'a uuid', nodeId)
  if (typeof name !== 'string' || !/^[^.\p{Cc}]+$/u.test(name) || Buffer.byteLength(name) > 55)
    throw argumentError('name', '1 to 55 bytes without dots', name)
  expectInteger('port', port, 1, 65535)
  if (!/^[0-9a-f]{32,64}$/.test(fingerprint))
    throw argumentError('fingerprint', '32 to 64 hexadecimal digits', fingerprint)
  if (!/^[0-9a-f]{16}$/.test(namespace)) throw argumentError('namespace', '16 hexadecimal digits', namespace)
  expectInteger('devices', devices, 0, 65535)
  expectInteger('memoryGiB', memoryGiB, 0, 1 << 30)
}

/** The part of a fingerprint that is told. */
export const shortFingerprint = (fingerprint: string): string => fingerprint.slice(0, 32)

/** Names that a node's records have. */
export const namesOf = (domain: string, { nodeId }: Announcement, label: string) => ({
  instance: `${label}.${domain}`,
  host: `${nodeId}.local`,
})

/** TXT of a node: below 400 bytes. */
function txtOf({ nodeId, port, fingerprint, namespace, devices, memoryGiB }: Announcement): string[] {
  const values = {
    id: nodeId,
    v: protocolVersion,
    ns: namespace,
    p: port,
    fp: shortFingerprint(fingerprint),
    n: devices,
    m: memoryGiB,
  }
  return Object.entries(values).map(([key, value]) => `${key}=${value}`)
}

/** All records of a node on an interface with these addresses; PTR first. `ttl` 0 takes them back. */
export function recordsOf(
  domain: string,
  announcement: Announcement,
  label: string,
  addresses: readonly string[],
  ttl = recordTtl,
): [Answer, ...Answer[]] {
  const { instance, host } = namesOf(domain, announcement, label)
  const unique = { ttl, flush: true, class: 'IN' as const }
  return [
    { name: domain, type: 'PTR', ttl, class: 'IN', data: instance },
    { name: instance, type: 'SRV', ...unique, data: { port: announcement.port, target: host } },
    { name: instance, type: 'TXT', ...unique, data: txtOf(announcement) },
    ...addresses.map(address => ({
      name: host,
      type: isIP(address) === 6 ? ('AAAA' as const) : ('A' as const),
      ...unique,
      data: address.replace(/%.*$/, ''),
    })),
  ]
}

const same = (a: string, b: string): boolean => a.toLowerCase() === b.toLowerCase()

/** The records of a packet, as many as one of ours may have; none of a packet with more. */
export function recordsIn(packet: Packet): Answer[] {
  const all = [...(packet.answers ?? []), ...(packet.additionals ?? [])]
  return all.length > maxRecords ? [] : all
}

/** Labels of the instances of a service that a packet takes back. */
export function goodbyesIn(packet: Packet, domain: string): string[] {
  return recordsIn(packet).flatMap(record =>
    record.type === 'PTR' && record.ttl === 0 && same(record.name, domain)
      ? [String(record.data).toLowerCase()]
      : [],
  )
}

/** Instances of a service that a response describes whole: what is incomplete or makes no sense is left out. */
export function sightingsIn(packet: Packet, domain: string): Sighting[] {
  const records = recordsIn(packet)
  const instances = new Set<string>()
  for (const record of records)
    if (record.type === 'PTR' && (record.ttl ?? 0) > 0 && same(record.name, domain))
      instances.add(String(record.data))
  for (const record of records)
    if (record.type === 'SRV' && record.name.toLowerCase().endsWith(`.${domain.toLowerCase()}`))
      instances.add(record.name)
  const found = new Map<string, Sighting>()
  for (const instance of instances) {
    const sighting = sightingOf(records, instance, domain)
    if (sighting) found.set(sighting.instance, sighting)
  }
  return [...found.values()]
}

function sightingOf(records: readonly Answer[], instance: string, domain: string): Sighting | undefined {
  const label = instance.slice(0, -domain.length - 1)
  if (!instance.toLowerCase().endsWith(`.${domain.toLowerCase()}`) || !isLabel(label)) return undefined
  let port = 0
  let target: string | undefined
  let ttl = 0
  let txt = new Map<string, string>()
  for (const record of records) {
    if (!same(record.name, instance)) continue
    if (record.type === 'SRV') {
      port = record.data.port
      target = record.data.target
      ttl = record.ttl ?? 0
    } else if (record.type === 'TXT') txt = readTxt(record.data)
  }
  const nodeId = txt.get('id')
  if (target === undefined || !(port >= 1 && port <= 65535) || ttl === 0 || !isUuid(nodeId)) return undefined
  const host = target
  const addresses = records.flatMap(record =>
    (record.type === 'A' || record.type === 'AAAA') && same(record.name, host) && isIP(record.data)
      ? [record.data]
      : [],
  )
  return {
    instance: instance.toLowerCase(),
    name: label,
    nodeId,
    port,
    addresses: [...new Set(addresses)].slice(0, maxAddresses),
    fingerprint: hex(txt.get('fp'), 32),
    namespace: hex(txt.get('ns'), 16),
    devices: count(txt.get('n')),
    memoryGiB: count(txt.get('m')),
    ttl: Math.min(ttl, 3600),
  }
}

/** Whether it can be sent as it is known here: in lower case, which may be longer, and with U+FFFD for what is no UTF-8. */
const isLabel = (text: string): boolean =>
  /^[^.\ufffd]+$/.test(text) && Buffer.byteLength(text.toLowerCase()) <= 63

const hex = (text: string | undefined, digits: number): string =>
  text !== undefined && text.length === digits && /^[0-9a-f]*$/.test(text) ? text : ''

const count = (text: string | undefined): number | undefined =>
  text !== undefined && /^\d{1,9}$/.test(text) ? Number(text) : undefined

/** Keys and values of TXT; none where it is longer than ours may be. */
function readTxt(data: unknown): Map<string, string> {
  const parts = (Array.isArray(data) ? data : [data]).map(part => Buffer.from(part as Buffer).toString())
  const values = new Map<string, string>()
  if (parts.reduce((sum, part) => sum + part.length + 1, 0) > maxTxtBytes) return values
  for (const part of parts) {
    const at = part.indexOf('=')
    if (at > 0 && !values.has(part.slice(0, at))) values.set(part.slice(0, at), part.slice(at + 1))
  }
  return values
}
