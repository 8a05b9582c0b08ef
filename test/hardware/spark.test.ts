// Which machines are a DGX Spark and which are not, from files alone.
import t from 'tap'
import { detectSpark, isSparkGpu, parseRelease, readPlatform, sparkEvidence } from '#lib/hardware/spark.js'
import { type FakeMachine, FakeRoot, gb10Pci, runChild } from '../fixtures/machine.js'
import { garbage } from '../fixtures/values/garbage.js'

const foundersRelease = [
  'DGX_NAME="DGX Spark"',
  'DGX_PRETTY_NAME="NVIDIA DGX Spark"',
  'DGX_SWBUILD_DATE="2025-09-10-13-50-03"',
  'DGX_SWBUILD_VERSION="7.2.3"',
  'DGX_PLATFORM="DGX Server for KVM"',
  'DGX_SERIAL_NUMBER="SECRET-SERIAL"',
  '',
  'DGX_OTA_VERSION="7.3.1"',
  'DGX_OTA_DATE="Tue Oct 14 2025"',
  'DGX_OTA_VERSION="7.6.0"',
].join('\n')

const founders: FakeMachine = {
  dmi: { vendor: 'NVIDIA\n', product: 'NVIDIA_DGX_Spark\n', version: 'A.7\n', family: 'DGX Spark\n' },
  pci: [gb10Pci, { address: '0000:01:00.0', vendor: '15b3', device: '1021', class: '020700' }],
  files: { 'etc/dgx-release': foundersRelease },
}

interface Case {
  machine: FakeMachine
  model: string | null
  os?: string
}

const cases: Record<string, Case> = {
  'DGX Spark Founders Edition': {
    machine: founders,
    model: 'NVIDIA DGX Spark Founders Edition',
    os: '7.6.0',
  },
  'Founders in a container without release file': {
    machine: { dmi: founders.dmi!, pci: [gb10Pci] },
    model: 'NVIDIA DGX Spark Founders Edition',
  },
  'ASUS Ascent GX10': {
    machine: {
      dmi: { vendor: 'ASUSTeK COMPUTER INC.', product: 'GX10', version: '5.36_GX10DGX', family: 'DGX Spark' },
      pci: [gb10Pci],
    },
    model: 'ASUS Ascent GX10',
  },
  'Dell, vendor with two spaces, no PCI bus visible': {
    machine: {
      dmi: { vendor: 'Dell  Inc.', product: 'Dell Pro Max with GB10 FCM1253', family: 'DGX Spark' },
    },
    model: 'Dell Pro Max with GB10',
  },
  'HP ZGX Nano with an unquoted release file': {
    machine: {
      dmi: { vendor: 'HP', product: 'HP  ZGX Nano G1n AI Station', family: 'HP ZGX' },
      files: {
        'etc/dgx-release':
          'DGX_NAME=DGX Spark\nDGX_PLATFORM=HP ZGX Nano G1n AI Station\nDGX_SWBUILD_VERSION=7.2.3',
      },
    },
    model: 'HP ZGX Nano G1n',
    os: '7.2.3',
  },
  'HP known only by its release file': {
    machine: {
      dmi: { vendor: 'HP', product: '8E5A' },
      files: { 'etc/dgx-release': 'DGX_NAME="DGX Spark"\nDGX_PLATFORM="HP ZGX Nano G1n AI Station"\n' },
    },
    model: 'HP ZGX Nano G1n',
  },
  'Lenovo with a machine type as product': {
    machine: {
      dmi: { vendor: 'LENOVO', product: '30KL0001US', version: 'ThinkStation PGX' },
      pci: [gb10Pci],
    },
    model: 'Lenovo ThinkStation PGX',
  },
  'Acer Veriton GN100': {
    machine: { dmi: { vendor: 'Acer', product: 'Veriton GN100' } },
    model: 'Acer Veriton GN100',
  },
  'MSI EdgeXpert': {
    machine: { dmi: { vendor: 'Micro-Star International Co., Ltd.', product: 'MS-C931' } },
    model: 'MSI EdgeXpert',
  },
  'Gigabyte AI TOP ATOM': {
    machine: { dmi: { vendor: 'GIGABYTE', product: 'AI TOP ATOM' }, pci: [gb10Pci] },
    model: 'Gigabyte AI TOP ATOM',
  },
  'another maker': {
    machine: { dmi: { vendor: 'Example', product: 'Box' }, pci: [gb10Pci] },
    model: 'GB10 system',
  },
  'FASTOS release file alone': {
    machine: { files: { 'etc/fastos-release': 'NAME="DGX SPARK FASTOS"\nVERSION="1.91.51"\n' } },
    model: 'GB10 system',
  },
  'the kernel module names the GPU, sysfs shows no PCI bus': {
    machine: {
      files: {
        'proc/driver/nvidia/gpus/000f:01:00.0/information': 'Model: \t\t NVIDIA GB10\nIRQ:   \t\t 409\n',
      },
    },
    model: 'GB10 system',
  },
  'DGX Station': {
    machine: {
      dmi: { vendor: 'NVIDIA', product: 'DGX Station', family: 'DGX Station' },
      pci: [{ address: '0009:01:00.0', vendor: '10de', device: '31c2', driver: 'nvidia' }],
      files: {
        'etc/dgx-release':
          'DGX_NAME="DGX Station"\nDGX_PRETTY_NAME="NVIDIA DGX Station"\nDGX_SWBUILD_VERSION="7.4.0"',
      },
    },
    model: null,
    os: '7.4.0',
  },
  'Dell Pro Max with GB300': {
    machine: { dmi: { vendor: 'Dell Inc.', product: 'Dell Pro Max with GB300' } },
    model: null,
  },
  'HP ZGX Fury': { machine: { dmi: { vendor: 'HP', product: 'HP ZGX Fury AI Station' } }, model: null },
  'workstation with an RTX PRO 6000 Blackwell': {
    machine: {
      dmi: { vendor: 'Dell Inc.', product: 'Precision 7960 Tower', family: 'Precision' },
      pci: [{ address: '0000:65:00.0', vendor: '10de', device: '2bb1', class: '030000', driver: 'nvidia' }],
    },
    model: null,
  },
  'N1X laptop': {
    machine: {
      dmi: { vendor: 'Dell Inc.', product: 'XPS' },
      pci: [{ address: '000f:01:00.0', vendor: '10de', device: '2e03', driver: 'nvidia' }],
      files: { 'proc/driver/nvidia/gpus/000f:01:00.0/information': 'Model: NVIDIA GB10\n' },
    },
    model: null,
  },
  'N1X laptop, other part': {
    machine: { pci: [{ address: '000f:01:00.0', vendor: '10de', device: '2e06' }] },
    model: null,
  },
  'plain PC': {
    machine: { dmi: { vendor: 'LENOVO', product: 'ThinkPad X1', family: 'ThinkPad' } },
    model: null,
  },
  'a laptop whose name starts like the GX10': {
    machine: { dmi: { vendor: 'ASUSTeK COMPUTER INC.', product: 'GX1040 Notebook' } },
    model: null,
  },
  'Qualcomm phone board': {
    machine: {
      files: {
        'proc/device-tree/model': 'comma tizi\0',
        'sys/class/kgsl/kgsl-3d0/gpu_model': 'Adreno630v2\n',
      },
    },
    model: null,
  },
  'another maker with the device number of GB10': {
    machine: { pci: [{ address: '0000:01:00.0', vendor: '8086', device: '2e12', class: '030000' }] },
    model: null,
  },
  'an empty root': { machine: {}, model: null },
}

for (const [name, { machine, model, os }] of Object.entries(cases)) {
  t.test(name, async t => {
    const root = new FakeRoot(machine)
    t.teardown(() => root.dispose())
    const isSpark = detectSpark(root.path)
    t.equal(isSpark, model !== null)
    const platform = readPlatform(root.path, isSpark)
    t.equal(platform.oemModel, model)
    t.equal(platform.dgxOsVersion, os ?? null)
    t.notMatch(JSON.stringify(platform), /SECRET-SERIAL/)
    t.notMatch(JSON.stringify(platform), / {2}|\\n|\\u0000/, 'names are normalised')
  })
}

t.test('names must match as a whole', async t => {
  const evidence = (name: string): string | null =>
    sparkEvidence({
      pci: [],
      names: [name],
      dmi: { vendor: null, product: null, version: null, family: null },
      release: new Map(),
    })
  t.equal(evidence('NVIDIA GB10'), 'a GPU called NVIDIA GB10')
  for (const name of [
    'NVIDIA GB100',
    'NVIDIA GB10B',
    'NVIDIA DGX Display',
    'NVIDIA RTX PRO 6000 Blackwell',
    '',
  ]) {
    t.equal(evidence(name), null, name)
  }
})

t.test('a GPU by its PCI id, else by its name', async t => {
  const nvidia = (deviceId: string) => ({ vendorId: '10de', deviceId })
  t.equal(isSparkGpu({ name: null, pci: nvidia('2e12') }), true)
  t.equal(isSparkGpu({ name: 'NVIDIA GB10', pci: null }), true)
  t.equal(isSparkGpu({ name: 'NVIDIA GB10', pci: nvidia('2e06') }), false)
  t.equal(isSparkGpu({ name: 'NVIDIA RTX PRO 6000', pci: nvidia('2bb1') }), false)
  t.equal(isSparkGpu({ name: null, pci: null }), false)
})

t.test('isDgxSpark() needs neither addon nor promise', async t => {
  const root = new FakeRoot(founders)
  t.teardown(() => root.dispose())
  const code = "import { isDgxSpark } from 'dgx-spark'\nconst answer = isDgxSpark()"
  t.equal(runChild(code, { DGX_SPARK_SYSFS_ROOT: root.path, DGX_SPARK_BUILD: 'none' }), true)
  t.equal(runChild(code, { DGX_SPARK_SYSFS_ROOT: '/nonexistent', DGX_SPARK_BUILD: 'none' }), false)
})

t.test('release files: the last value wins, serial numbers are left out', async t => {
  const fields = parseRelease(foundersRelease)
  t.equal(fields.get('DGX_OTA_VERSION'), '7.6.0')
  t.equal(fields.get('DGX_SERIAL_NUMBER'), undefined)
  t.same(
    [...parseRelease(' A = b  c \nB=\'q"\'\nlower=1\n=2\nC=""\nD')],
    [
      ['A', 'b c'],
      ['B', 'q"'],
    ],
  )
})

t.test('no release file makes the parser throw', async t => {
  for (const text of garbage(foundersRelease, 2000, 11)) {
    for (const [key, value] of parseRelease(text)) {
      if (key.includes('SERIAL') || value === '') t.fail(`kept ${key}=${value}`)
    }
  }
})
