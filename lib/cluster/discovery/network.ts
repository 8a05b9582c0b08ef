// network.ts: one multicast DNS socket for each address of each interface: one socket alone sends on the default route
// only, and a direct cable has none. Interfaces come and go: they are looked at every five seconds.
import { createSocket } from 'node:dgram'
import { BlockList } from 'node:net'
import { networkInterfaces } from 'node:os'
import { setTimeout as pause } from 'node:timers/promises'
import type { Packet } from 'dns-packet'
import type multicastDns from 'multicast-dns'

/** A packet that came in. */
export interface Arrival {
  readonly packet: Packet
  readonly from: { readonly address: string; readonly port: number }
  /** Of the interface that it came in on. */
  readonly interfaceName: string
  /** Answers to the sender alone. */
  reply(packet: Packet): void
}

/** What went wrong in packets of others. */
export interface PacketCounts {
  /** That cannot be decoded. */
  malformed: number
  /** From no network of the interface, or too many of one sender. */
  dropped: number
  /** Why a socket failed, the last time that one did. */
  failure?: string
}

/** Where packets come from and go to. */
export interface PacketNetwork {
  readonly counts: PacketCounts
  /** `changed` is told when an interface comes later. */
  start(heard: (arrival: Arrival) => void, changed: () => void): Promise<void>
  /** Sends on each interface what `make` gives for its addresses. */
  send(make: (addresses: readonly string[]) => Packet): void
  close(): Promise<void>
}

/** The port of multicast DNS. */
export const mdnsPort = 5353

const group6 = 'ff02::fb'
const rescanMs = 5000
const lingerMs = 500
const maxPacketsPerSecond = 100

/** With the method that its types leave out. */
type MulticastDns = ReturnType<typeof multicastDns> & {
  send(packet: Packet, to: object | undefined, sent: (error?: Error | null) => void): void
}

interface InterfaceSocket {
  readonly mdns: MulticastDns
  readonly addresses: string[]
}

interface InterfaceAddress {
  readonly name: string
  readonly address: string
  readonly family: 'IPv4' | 'IPv6'
  readonly cidr: string | null
}

/** Sockets on the interfaces of this machine. */
export class MulticastNetwork implements PacketNetwork {
  readonly counts: PacketCounts = { malformed: 0, dropped: 0 }
  readonly #wanted: readonly string[] | undefined
  readonly #sockets = new Map<string, InterfaceSocket>()
  readonly #senders = new Map<string, number>()
  readonly #sends = new Set<Promise<void>>()
  #heard: (arrival: Arrival) => void = () => {}
  #changed: () => void = () => {}
  #timers: NodeJS.Timeout[] = []
  #scanning: Promise<void> | undefined
  #isClosed = false

  /** @param interfaces - names; default: all but loopback, and loopback where there is no other */
  constructor(interfaces?: readonly string[]) {
    this.#wanted = interfaces
  }

  async start(heard: (arrival: Arrival) => void, changed: () => void): Promise<void> {
    this.#heard = heard
    await this.#scan()
    this.#changed = changed
    this.#timers = [setInterval(() => this.#scan(), rescanMs), setInterval(() => this.#senders.clear(), 1000)]
    for (const timer of this.#timers) timer.unref()
  }

  send(make: (addresses: readonly string[]) => Packet): void {
    for (const [key, { mdns, addresses }] of this.#sockets) {
      const sent = new Promise<void>(resolve => {
        mdns.send(make(addresses), undefined, error => {
          if (error) this.#failed(key, error)
          resolve()
        })
      })
      this.#sends.add(sent)
      sent.then(() => this.#sends.delete(sent))
    }
  }

  async close(): Promise<void> {
    this.#isClosed = true
    for (const timer of this.#timers) clearInterval(timer)
    await Promise.race([Promise.all(this.#sends), pause(lingerMs)]) // a socket that closes drops what it has to send
    await this.#scanning
    await Promise.all([...this.#sockets.keys()].map(key => this.#drop(key)))
  }

  #scan(): Promise<void> {
    this.#scanning ??= this.#match().finally(() => {
      this.#scanning = undefined
    })
    return this.#scanning
  }

  /** Opens sockets for new addresses and closes those of addresses that are gone. */
  async #match(): Promise<void> {
    const found = new Map(this.#addresses().map(one => [`${one.name} ${one.address}`, one]))
    for (const key of this.#sockets.keys()) if (!found.has(key)) await this.#drop(key)
    const missing = [...found].filter(([key]) => !this.#sockets.has(key))
    const opened = await Promise.all(missing.map(([key, one]) => this.#open(key, one)))
    if (opened.includes(true) && !this.#isClosed) this.#changed()
  }

  #addresses(): InterfaceAddress[] {
    const all = Object.entries(networkInterfaces()).flatMap(([name, list]) =>
      (list ?? []).map(({ address, family, cidr, internal }) => ({ name, address, family, cidr, internal })),
    )
    const usable = all.filter(({ address, family }) => family === 'IPv4' || address.startsWith('fe80:'))
    if (this.#wanted) return usable.filter(({ name }) => this.#wanted!.includes(name))
    const external = usable.filter(({ internal }) => !internal)
    return external.length > 0 ? external : usable
  }

  async #open(key: string, { name, address, family, cidr }: InterfaceAddress): Promise<boolean> {
    const { default: open } = await import('multicast-dns')
    if (this.#isClosed) return false
    const six = family === 'IPv6'
    const mdns = open(
      six
        ? {
            type: 'udp6',
            ip: `${group6}%${name}`,
            interface: `::%${name}`,
            bind: '::',
            socket: createSocket({ type: 'udp6', reuseAddr: true, ipv6Only: true }),
          }
        : { interface: address, bind: '0.0.0.0' },
    ) as MulticastDns
    const isLocal = networkTest(cidr, six, name)
    mdns.on('packet', (packet: Packet, from: { address: string; port: number }) => {
      if (!isLocal(from.address)) return
      if (this.#floods(from.address)) {
        this.counts.dropped++
        return
      }
      const reply = (answer: Packet): void => mdns.send(answer, from, () => {})
      this.#heard({ packet, from, interfaceName: name, reply })
    })
    mdns.on('warning', (error: NodeJS.ErrnoException) => {
      if (error.syscall === undefined) this.counts.malformed++
      // A socket that is destroyed while it warns of a failed join throws in its `listening` handler: the process ends.
      else setImmediate(() => this.#failed(key, error))
    })
    mdns.on('error', (error: Error) => this.#failed(key, error))
    this.#sockets.set(key, { mdns, addresses: [address] })
    return new Promise(resolve => {
      mdns.once('ready', () => resolve(true))
      mdns.once('error', () => resolve(false))
    })
  }

  #floods(address: string): boolean {
    const count = (this.#senders.get(address) ?? 0) + 1
    if (this.#senders.size < 4096 || count > 1) this.#senders.set(address, count)
    return count > maxPacketsPerSecond
  }

  /** A socket that fails is opened again by the next scan. */
  #failed(key: string, error: Error): void {
    this.counts.failure = `${key}: ${error.message}`
    void this.#drop(key)
  }

  async #drop(key: string): Promise<void> {
    const socket = this.#sockets.get(key)
    this.#sockets.delete(key)
    if (!socket) return
    await new Promise<void>(resolve => {
      try {
        socket.mdns.destroy(resolve)
      } catch {
        resolve() // a socket that was never bound
      }
    })
  }
}

/**
 * Whether an address is of the interface's network. Every socket hears the packets of all interfaces, so this also tells
 * which interface a packet came in on.
 */
function networkTest(cidr: string | null, six: boolean, name: string): (address: string) => boolean {
  if (six) return address => address.startsWith('fe80:') && address.endsWith(`%${name}`)
  const [network = '', prefix] = (cidr ?? '').split('/')
  const list = new BlockList()
  if (cidr !== null) list.addSubnet(network, Number(prefix), 'ipv4')
  return address => list.check(address)
}
