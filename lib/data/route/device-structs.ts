// device-structs.ts: the device: its position and motion, its sensors, the recording.
import {
  at,
  bool,
  data,
  f32,
  f32s,
  f64,
  f64s,
  i8,
  i32,
  i64,
  oneOf,
  struct,
  text,
  texts,
  u16,
  u32,
  u64,
} from './fields.js'

/** How the camera is mounted. */
export const liveCalibration = struct({
  calStatus: oneOf(16, 'uncalibrated', 'calibrated', 'invalid', 'recalibrating'),
  /** Percent. */
  calPerc: i8(8),
  calCycle: i32(32),
  validBlocks: i32(64),
  /** rad: roll, pitch, yaw from the calibrated frame to the device. */
  rpyCalib: f32s(4),
  rpyCalibSpread: f32s(5),
  /** rad: roll, pitch, yaw. */
  wideFromDeviceEuler: f32s(6),
  /** m above the road. */
  height: f32s(7),
  /** Row-major 3x4 matrix. */
  extrinsicMatrix: f32s(1),
})

/** A measurement of three values. */
const measurement = struct({ value: f64s(0), std: f64s(1), valid: bool(0) })

/** Position and motion, until 2024. */
export const liveLocationKalman = struct({
  /** m. */
  positionECEF: at(0, measurement),
  /** Degrees, degrees, m. */
  positionGeodetic: at(1, measurement),
  /** m/s. */
  velocityECEF: at(2, measurement),
  /** m/s. */
  velocityNED: at(3, measurement),
  /** m/s. */
  velocityDevice: at(4, measurement),
  /** m/s^2. */
  accelerationDevice: at(5, measurement),
  /** rad: roll, pitch, yaw. */
  orientationECEF: at(6, measurement),
  /** rad: roll, pitch, yaw. */
  orientationNED: at(7, measurement),
  /** rad/s. */
  angularVelocityDevice: at(8, measurement),
  /** rad: roll, pitch, yaw. */
  calibratedOrientationNED: at(9, measurement),
  /** m/s. */
  velocityCalibrated: at(10, measurement),
  /** m/s^2. */
  accelerationCalibrated: at(11, measurement),
  /** rad/s. */
  angularVelocityCalibrated: at(12, measurement),
  /** rad: roll, pitch, yaw. */
  calibratedOrientationECEF: at(13, measurement),
  status: oneOf(32, 'uninitialized', 'uncalibrated', 'valid'),
  gpsWeek: i32(0),
  /** s. */
  gpsTimeOfWeek: f64(64),
  unixTimestampMillis: i64(128),
  inputsOK: bool(48, true),
  posenetOK: bool(49, true),
  gpsOK: bool(50, true),
  sensorsOK: bool(51, true),
  deviceStable: bool(52, true),
  excessiveResets: bool(53),
  /** s. */
  timeSinceReset: f64(192),
  /** s. */
  timeToFirstFix: f32(256),
})

const xyz = struct({
  x: f32(0),
  y: f32(32),
  z: f32(64),
  xStd: f32(96),
  yStd: f32(128),
  zStd: f32(160),
  valid: bool(192),
})

/** Orientation and motion of the device. */
export const livePose = struct({
  /** rad. */
  orientationNED: at(0, xyz),
  /** m/s. */
  velocityDevice: at(1, xyz),
  /** m/s^2. */
  accelerationDevice: at(2, xyz),
  /** rad/s. */
  angularVelocityDevice: at(3, xyz),
  inputsOK: bool(0),
  posenetOK: bool(1),
  sensorsOK: bool(2),
  /** Nanoseconds since boot. */
  timestamp: u64(64),
})

/** A position of a GNSS receiver. */
export const gpsLocation = struct({
  flags: u16(0),
  hasFix: bool(480),
  /** Degrees. */
  latitude: f64(64),
  /** Degrees. */
  longitude: f64(128),
  /** m. */
  altitude: f64(192),
  /** m/s. */
  speed: f32(32),
  bearingDeg: f32(256),
  /** m/s: north, east, down. */
  vNED: f32s(0),
  /** m. */
  horizontalAccuracy: f32(288),
  /** m. */
  verticalAccuracy: f32(384),
  bearingAccuracyDeg: f32(416),
  /** m/s. */
  speedAccuracy: f32(448),
  unixTimestampMillis: i64(320),
  source: oneOf(
    16,
    'android',
    'iOS',
    'car',
    'velodyne',
    'fusion',
    'external',
    'ublox',
    'trimble',
    'qcomdiag',
    'unicore',
  ),
  satelliteCount: i8(488),
})

/** A reading of a sensor with three axes. */
export const sensorEvent = struct({
  /** Nanoseconds since boot. */
  timestamp: i64(128),
  /** m/s^2 of an accelerometer, rad/s of a gyroscope, in the frame of the sensor. */
  values: at(0, f32s(0)),
})

/** Names of devices. */
const deviceTypes = ['unknown', 'neo', 'chffrAndroid', 'chffrIos', 'tici', 'pc', 'tizi', 'mici']

/** What a recording begins with. */
export const initData = struct({
  deviceType: oneOf(0, ...deviceTypes),
  version: text(3),
  dongleId: text(2),
  gitCommit: text(8),
  gitBranch: text(9),
  gitRemote: text(10),
  gitCommitDate: text(17),
  dirty: bool(16),
  passive: bool(17),
  kernelArgs: texts(0),
  kernelVersion: text(12),
  osVersion: text(15),
  bootlogId: text(18),
  /** Nanoseconds since 1970. */
  wallTimeNanos: u64(64),
})

/** A mark at the start and at the end of a segment. */
export const sentinel = struct({
  type: oneOf(0, 'endOfSegment', 'endOfRoute', 'startOfSegment', 'startOfRoute'),
  signal: i32(32),
})

/** Load and temperatures of the device. */
export const deviceState = struct({
  deviceType: oneOf(656, ...deviceTypes),
  started: bool(192),
  /** Nanoseconds since boot. */
  startedMonoTime: u64(256),
  thermalStatus: oneOf(208, 'ok', 'warm', 'overheated', 'critical'),
  freeSpacePercent: f32(128),
  memoryUsagePercent: i8(200),
  gpuUsagePercent: i8(360),
  fanSpeedPercentDesired: u16(176),
  cpuTempC: f32s(1),
  gpuTempC: f32s(2),
  memoryTempC: f32(480),
  maxTempC: f32(736),
  powerDrawW: f32(672),
  somPowerDrawW: f32(704),
  networkType: oneOf(384, 'none', 'wifi', 'cell2G', 'cell3G', 'cell4G', 'cell5G', 'ethernet'),
  networkStrength: oneOf(400, 'unknown', 'poor', 'moderate', 'good', 'great'),
  screenBrightnessPercent: i8(640),
})

/** Sound of the microphone. */
export const rawAudioData = struct({
  /** Hz. */
  sampleRate: u32(0),
  /** Samples of 16 bits. */
  data: data(0),
})
