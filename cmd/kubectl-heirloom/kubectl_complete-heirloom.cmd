@rem SPDX-License-Identifier: Apache-2.0
@kubectl heirloom __complete %*
