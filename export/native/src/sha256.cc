#include "sha256.h"

#include <algorithm>
#include <cstring>

namespace keras_transformer {
namespace {

constexpr uint32_t kRounds[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t rotated(uint32_t word, int bits) { return word >> bits | word << (32 - bits); }

uint32_t word_at(const unsigned char* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
}

}  // namespace

void Sha256::block(const unsigned char* bytes) {
  uint32_t words[64];
  for (int i = 0; i < 16; ++i) words[i] = word_at(bytes + 4 * i);
  for (int i = 16; i < 64; ++i) {
    const uint32_t low = words[i - 15], high = words[i - 2];
    words[i] = words[i - 16] + words[i - 7] + (rotated(low, 7) ^ rotated(low, 18) ^ low >> 3) +
               (rotated(high, 17) ^ rotated(high, 19) ^ high >> 10);
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (int i = 0; i < 64; ++i) {
    const uint32_t first = h + (rotated(e, 6) ^ rotated(e, 11) ^ rotated(e, 25)) +
                           ((e & f) ^ (~e & g)) + kRounds[i] + words[i];
    const uint32_t second =
        (rotated(a, 2) ^ rotated(a, 13) ^ rotated(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + first, d = c, c = b, b = a, a = first + second;
  }
  const uint32_t added[8] = {a, b, c, d, e, f, g, h};
  for (int i = 0; i < 8; ++i) state_[i] += added[i];
}

void Sha256::update(const void* content, size_t size) {
  const auto* bytes = static_cast<const unsigned char*>(content);
  size_t kept = size_ % 64;
  size_ += size;
  if (kept) {
    const size_t taken = std::min(size, 64 - kept);
    std::memcpy(rest_.data() + kept, bytes, taken);
    bytes += taken, size -= taken;
    if (kept + taken < 64) return;
    block(rest_.data());
  }
  for (; size >= 64; bytes += 64, size -= 64) block(bytes);
  if (size) std::memcpy(rest_.data(), bytes, size);
}

std::string Sha256::hexadecimal() {
  unsigned char length[8];
  for (int i = 0; i < 8; ++i) length[i] = static_cast<unsigned char>(8 * size_ >> (56 - 8 * i));
  const unsigned char end[64] = {0x80};
  update(end, 1 + (119 - size_ % 64) % 64);
  update(length, 8);
  std::string digits;
  for (const uint32_t word : state_)
    for (int shift = 28; shift >= 0; shift -= 4) digits += "0123456789abcdef"[word >> shift & 15];
  return digits;
}

}  // namespace keras_transformer
