// interface-facts.ts: what the system says about the network interface that an address is of.
import { createSocket } from 'node:dgram'
import { readFile, stat } from 'node:fs/promises'
import { isIP } from 'node:net'
import { networkInterfaces } from 'node:os'
import path from 'node:path'

/** Kinds of interfaces. `virtual`: a tunnel, a bridge, a container. */
export type InterfaceKind = 'loopback' | 'wired' | 'wifi' | 'mobile' | 'virtual' | 'unknown'

/** An interface. */
export interface InterfaceFacts {
  /** Such as `eth0`. */
  readonly name: string
  /** What it goes over. */
  readonly kind: InterfaceKind
  /** Megabits per second that its driver tells. */
  readonly megabits: number | undefined
}

/** The interface that has an address; undefined where none has. */
export async function interfaceOf(address: string): Promise<InterfaceFacts | undefined> {
  const plain = address.replace(/%.*$/, '')
  for (const [name, addresses] of Object.entries(networkInterfaces())) {
    const found = addresses?.find(one => one.address === plain)
    if (!found) continue
    if (found.internal) return { name, kind: 'loopback', megabits: undefined }
    return process.platform === 'linux' ? factsFromSys(name) : factsFromSystem(name)
  }
  return undefined
}

const ethernet = 1
const infiniband = 32
const rawIp = 519
const loopback = 772

/**
 * What Linux tells of an interface.
 * @param folder - for tests
 */
export async function factsFromSys(name: string, folder = '/sys/class/net'): Promise<InterfaceFacts> {
  const inside = path.join(folder, path.basename(name))
  const read = (file: string): Promise<string> => readFile(path.join(inside, file), 'utf8').catch(() => '')
  const has = (file: string): Promise<boolean> =>
    stat(path.join(inside, file)).then(
      () => true,
      () => false,
    )
  const [type, speed, uevent] = await Promise.all(['type', 'speed', 'uevent'].map(read))
  const number = Number.parseInt(type, 10)
  const megabits = Number.parseInt(speed, 10)
  let kind: InterfaceKind = 'virtual'
  if (number === loopback) kind = 'loopback'
  else if ((await has('wireless')) || (await has('phy80211')) || /DEVTYPE=wlan/.test(uevent)) kind = 'wifi'
  else if (number === rawIp || /DEVTYPE=wwan/.test(uevent) || /^(wwan|rmnet|ppp)/.test(name)) kind = 'mobile'
  else if ((number === ethernet && (await has('device'))) || number === infiniband) kind = 'wired'
  else if (Number.isNaN(number)) kind = 'unknown'
  return { name, kind, megabits: megabits > 0 && kind !== 'virtual' ? megabits : undefined }
}

/** What other systems tell. */
async function factsFromSystem(name: string): Promise<InterfaceFacts> {
  const { networkInterfaces: listed } = await import('systeminformation')
  const found = await listed().catch(() => [])
  const one = (Array.isArray(found) ? found : [found]).find(({ iface }) => iface === name)
  const kinds = { wired: 'wired', wireless: 'wifi' } as const
  const kind: InterfaceKind = one?.virtual ? 'virtual' : (kinds[one?.type as keyof typeof kinds] ?? 'unknown')
  return { name, kind, megabits: one?.speed && one.speed > 0 ? one.speed : undefined }
}

/** The address from which the system sends to another one; undefined where it has no route. */
export function localAddressTo(remote: string): Promise<string | undefined> {
  const family = isIP(remote.replace(/%.*$/, ''))
  if (family === 0) return Promise.resolve(undefined)
  const socket = createSocket(family === 6 ? 'udp6' : 'udp4')
  return new Promise(resolve => {
    const settle = (address: string | undefined): void => {
      socket.close()
      resolve(address)
    }
    socket.on('error', () => settle(undefined))
    socket.connect(9, remote, () => settle(socket.address().address))
  })
}
