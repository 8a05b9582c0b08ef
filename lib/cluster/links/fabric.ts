// fabric.ts: networks that their operator calls trusted: a direct cable, a tunnel that encrypts. Only there, and within
// one machine, may links go without encryption.
import { BlockList, isIP } from 'node:net'
import { networkInterfaces } from 'node:os'
import { argumentError } from '../../core/checks.js'
import { SparkError } from '../../core/errors.js'
import { plainAddress } from './pipe.js'

/**
 * Addresses of trusted networks.
 * @example
 * const communicator = await join({ ...rank, kind: 'mpi', interface: 'enp1s0f0np0', fabric: new Fabric(['enp1s0f0np0']) })
 */
export class Fabric {
  readonly #networks = new BlockList()
  readonly #declared: readonly string[]

  /**
   * @param declared - names of interfaces, such as `enp1s0f0np0`, and networks, such as `10.77.0.0/24`
   * @throws SparkError ERR_ARGUMENT for what is neither
   */
  constructor(declared: readonly string[] = []) {
    this.#declared = declared
    this.#networks.addSubnet('127.0.0.0', 8)
    this.#networks.addAddress('::1', 'ipv6')
    for (const one of declared) this.#add(one)
  }

  #add(declared: string): void {
    const networks = declared.includes('/')
      ? [declared]
      : (networkInterfaces()[declared] ?? []).flatMap(({ cidr }) => cidr ?? [])
    if (networks.length === 0)
      throw argumentError(
        'fabric',
        'names of interfaces with an address, or networks like 10.0.0.0/24',
        declared,
      )
    for (const network of networks) {
      const [address = '', prefix = ''] = network.split('/')
      const family = isIP(address)
      const bits = /^\d{1,3}$/.test(prefix) ? Number(prefix) : Number.NaN
      if (family === 0 || !(bits >= 8 && bits <= (family === 4 ? 32 : 128)))
        throw argumentError('fabric', 'a network like 10.0.0.0/24, of 8 bits or more', network)
      this.#networks.addSubnet(address, bits, family === 4 ? 'ipv4' : 'ipv6')
    }
  }

  /** Whether an IP address is of this machine alone or of a declared network. */
  includes(address: string): boolean {
    const plain = plainAddress(address).replace(/%.*$/, '')
    const family = isIP(plain)
    return family !== 0 && this.#networks.check(plain, family === 4 ? 'ipv4' : 'ipv6')
  }

  /** @throws SparkError ERR_DENIED for an address that is in none of the networks */
  expect(address: string): void {
    if (this.includes(address)) return
    const list = this.#declared.length > 0 ? this.#declared.join(', ') : 'none'
    throw new SparkError(
      'ERR_DENIED',
      `tcp does not encrypt: ${address} is neither loopback nor in the declared fabric (${list}). Use tls, or declare the interface or network as fabric when nobody else is on it`,
    )
  }
}
