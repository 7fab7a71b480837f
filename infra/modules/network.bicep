// A virtual network: a subnet that the app's traffic leaves by, and private endpoints of its storage with their names.
param name string
param location string
param tags object

@description('The network\'s addresses; two subnets of a /24 each are taken from it.')
param addressPrefix string

@description('Who uses the app\'s subnet: Microsoft.App/environments (Flex, Container Apps) or Microsoft.Web/serverFarms (Premium).')
param delegation string

@description('Resource id of the app\'s storage account.')
param storageId string

@description('Resource id of the account with the share of code; empty = none.')
param contentId string

var targets = concat(
  map(['blob', 'queue', 'table'], service => { service: service, accountId: storageId }),
  empty(contentId) ? [] : [{ service: 'file', accountId: contentId }]
)

resource network 'Microsoft.Network/virtualNetworks@2024-05-01' = {
  name: name
  location: location
  tags: tags
  properties: {
    addressSpace: { addressPrefixes: [addressPrefix] }
    subnets: [
      {
        name: 'app'
        properties: {
          addressPrefix: cidrSubnet(addressPrefix, 24, 0)
          delegations: [
            {
              name: 'app'
              properties: { serviceName: delegation }
            }
          ]
        }
      }
      {
        name: 'endpoints'
        properties: {
          addressPrefix: cidrSubnet(addressPrefix, 24, 1)
        }
      }
    ]
  }
}

// The public name of each service leads to these names inside the network.
resource zones 'Microsoft.Network/privateDnsZones@2024-06-01' = [
  for target in targets: {
    name: 'privatelink.${target.service}.${environment().suffixes.storage}'
    location: 'global'
    tags: tags
  }
]

resource links 'Microsoft.Network/privateDnsZones/virtualNetworkLinks@2024-06-01' = [
  for (target, i) in targets: {
    parent: zones[i]
    name: name
    location: 'global'
    tags: tags
    properties: {
      registrationEnabled: false
      virtualNetwork: { id: network.id }
    }
  }
]

resource endpoints 'Microsoft.Network/privateEndpoints@2024-05-01' = [
  for target in targets: {
    name: '${name}-${target.service}'
    location: location
    tags: tags
    properties: {
      subnet: { id: '${network.id}/subnets/endpoints' }
      privateLinkServiceConnections: [
        {
          name: target.service
          properties: {
            privateLinkServiceId: target.accountId
            groupIds: [target.service]
          }
        }
      ]
    }
  }
]

resource names 'Microsoft.Network/privateEndpoints/privateDnsZoneGroups@2024-05-01' = [
  for (target, i) in targets: {
    parent: endpoints[i]
    name: 'default'
    properties: {
      privateDnsZoneConfigs: [
        {
          name: target.service
          properties: { privateDnsZoneId: zones[i].id }
        }
      ]
    }
  }
]

// The names must lead into the network before the app starts, so it takes the subnet from here.
output appSubnetId string = '${network.id}/subnets/app'
